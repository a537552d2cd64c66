"""A PyTorch program as files: written by training programs, read by the runtime.

    model.pt2   what `torch.export.save` writes; by itself a whole model
    weights.pt  optional: the state dict, as `torch.save` writes it; `model.pt2` then has none of it

A program is a graph of PyTorch's own operators, so no class of the training program is needed to run it. Its archive
has pickles in it and is read into memory: it is code, and hashed at each load. Weights apart are mapped, so that
replicas share them, and read by PyTorch's restricted reader, which runs no code.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export.passes import move_to_device_pass

from serving import errors
from serving.images.documents.output_manifest import Input
from serving.runtimes import tensors
from serving.runtimes.loading import Verified
from serving.system import atomic_file

PROGRAM = "model.pt2"
WEIGHTS = "weights.pt"
CPU = "cpu"


@dataclass(frozen=True)
class Program:
    """A loaded program: `call(*arrays)`, in the order of `inputs`, and the inputs that it was exported with."""

    call: Callable[..., Any]
    inputs: tuple[Input, ...]
    examples: tuple[torch.Tensor, ...]


def save(program: torch.export.ExportedProgram, directory: Path) -> None:
    """Write both files, each by one rename, the program last; `program` has no weights afterwards."""
    state = dict(program.state_dict)
    with atomic_file.replacing(directory / WEIGHTS) as path, Path(path).open("wb") as file:
        torch.save(state, file)
    for name, tensor in state.items():
        # One element in the place of all: the graph keeps its shapes, and the archive four bytes.
        hole = torch.zeros(1, dtype=tensor.dtype).expand(tensor.shape)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        program.state_dict[name] = torch.nn.Parameter(hole, requires_grad=False) if is_parameter else hole
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No complete tensor found", UserWarning)
        with atomic_file.replacing(directory / PROGRAM) as path, Path(path).open("wb") as file:
            torch.export.save(program, file)


def load(files: Verified, device: str = CPU) -> Program:
    """Make the program of its verified files, to be computed on this device; on a GPU no weights are shared.

    Raises:
        errors.Permanent: `LoadFailed`; `UnsupportedModel`, it takes something else than tensors of known types.
    """
    try:
        with open(files.program.again, "rb") as file:  # noqa: PTH123 a path of ours, not one to look at
            exported = torch.export.load(file)
        if device != CPU:
            exported = move_to_device_pass(exported, device)
        module = exported.module()
        if WEIGHTS in files.weights:
            path = files.weights[WEIGHTS].again
            state = torch.load(path, map_location=CPU, mmap=True, weights_only=True)
            if device != CPU:
                state = {name: tensor.to(device) for name, tensor in state.items()}
            module.load_state_dict(state, strict=True, assign=True)
    except Exception as error:  # loading runs the archive's own code, which may raise anything
        raise errors.Permanent(
            "LoadFailed", f"the model does not load: {type(error).__name__}: {error}"
        ) from error
    return described(exported, module, device)


def described(exported: torch.export.ExportedProgram, module: Any, device: str = CPU) -> Program:
    """Return the program with its inputs, as its graph says them; it takes tensors in the machine's own memory.

    Raises:
        errors.Permanent: `UnsupportedModel`, it takes something else than tensors of known types.
    """
    args, kwargs = exported.example_inputs or ((), {})
    given = (*args, *kwargs.values())
    examples = tuple(e.cpu() if isinstance(e, torch.Tensor) else e for e in given)
    names = list(exported.graph_signature.user_inputs)
    if not examples or len(names) != len(examples) or not all(isinstance(e, torch.Tensor) for e in examples):
        raise errors.Permanent(
            "UnsupportedModel",
            f"the program must take tensors, and be saved with examples of them; it takes {names}",
        )
    shapes = {node.name: node.meta["val"].shape for node in exported.graph.find_nodes(op="placeholder")}
    inputs = tuple(
        Input(name, datatype(example), tuple(size if type(size) is int else -1 for size in shapes[name]))
        for name, example in zip(names, examples, strict=True)
    )
    keywords = list(kwargs)

    def call(*own: torch.Tensor) -> Any:
        arrays = own if device == CPU else tuple(array.to(device) for array in own)
        positional = arrays[: len(args)]
        return module(*positional, **dict(zip(keywords, arrays[len(args) :], strict=True)))

    return Program(call, inputs, examples)


def datatype(tensor: torch.Tensor) -> str:
    """Return the protocol's name for the tensor's elements.

    Raises:
        errors.Permanent: `UnsupportedModel`, no datatype holds them.
    """
    try:
        return tensors.datatype_of(tensor[:0].numpy() if tensor.dim() else tensor.reshape(1).numpy())
    except TypeError as error:
        raise errors.Permanent(
            "UnsupportedModel", f"no tensor datatype holds elements of type {tensor.dtype}"
        ) from error
