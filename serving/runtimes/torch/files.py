"""The files of a PyTorch program: training programs write them, the runtime loads them.

    model.pt2   the output of `torch.export.save`; a complete model by itself
    weights.pt  optional: the state dict, written by `torch.save`; `model.pt2` then has no weights

A program is a graph of PyTorch's operators, so it runs without the classes of the training program. Its
archive contains pickles, so it counts as code and is hashed at each load. Separate weights are mapped, so
that replicas share them, and read by PyTorch's restricted reader, which runs no code.
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
from serving.runtimes.loading import VerifiedModel
from serving.runtimes.open_inference import tensors
from serving.system.files import atomic_file

PROGRAM = "model.pt2"
MODEL_WEIGHTS = "weights.pt"
CPU = "cpu"


@dataclass(frozen=True)
class Program:
    """A loaded program."""

    call: Callable[..., Any]
    """Takes the input tensors in the order of `inputs`."""
    inputs: tuple[Input, ...]
    examples: tuple[torch.Tensor, ...]
    """The inputs that the program was exported with."""


def save(program: torch.export.ExportedProgram, directory: Path) -> None:
    """Write each file atomically, the program last, as weights alone are no model.

    This removes the weights from `program`.
    """
    state = dict(program.state_dict)
    with atomic_file.replacing(directory / MODEL_WEIGHTS) as path, Path(path).open("wb") as file:
        torch.save(state, file)
    for name, tensor in state.items():
        # One expanded element: the graph keeps its shapes, and the archive stores one element.
        placeholder = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
        program.state_dict[name] = (
            torch.nn.Parameter(placeholder, requires_grad=False)
            if isinstance(tensor, torch.nn.Parameter)
            else placeholder
        )
    with warnings.catch_warnings():
        # PyTorch warns of the placeholders, as their storage has fewer elements than their shape.
        warnings.filterwarnings("ignore", "No complete tensor found", UserWarning)
        with atomic_file.replacing(directory / PROGRAM) as path, Path(path).open("wb") as file:
            torch.export.save(program, file)


def load(files: VerifiedModel, device: str = CPU) -> Program:
    """Load a program for this device from its verified files; replicas on a GPU share no weights.

    Raises:
        errors.Permanent: `LoadFailed`; `UnsupportedModel`, an input is not a tensor of a known type.
    """
    try:
        with open(files.program.reopen_path, "rb") as file:  # noqa: PTH123 a path in /proc, as a string
            exported = torch.export.load(file)
        if device != CPU:
            exported = move_to_device_pass(exported, device)
        module = exported.module()
        if MODEL_WEIGHTS in files.model_weights:
            path = files.model_weights[MODEL_WEIGHTS].reopen_path
            state = torch.load(path, map_location=CPU, mmap=True, weights_only=True)
            if device != CPU:
                state = {name: tensor.to(device) for name, tensor in state.items()}
            module.load_state_dict(state, strict=True, assign=True)
    except Exception as error:  # loading runs the archive's own code, which may raise anything
        raise errors.Permanent(
            "LoadFailed", f"the model does not load: {type(error).__name__}: {error}"
        ) from error
    return program_of(exported, module, device)


def program_of(exported: torch.export.ExportedProgram, module: Any, device: str = CPU) -> Program:
    """Return the program with the inputs of its graph; its call takes tensors in main memory.

    Raises:
        errors.Permanent: `UnsupportedModel`, an input is not a tensor of a known type.
    """
    args, kwargs = exported.example_inputs or ((), {})
    examples = tuple(e.cpu() if isinstance(e, torch.Tensor) else e for e in (*args, *kwargs.values()))
    names = list(exported.graph_signature.user_inputs)
    if not examples or len(names) != len(examples) or not all(isinstance(e, torch.Tensor) for e in examples):
        raise errors.Permanent(
            "UnsupportedModel",
            f"the program must take tensors, and be exported with examples of them; it takes {names}",
        )
    shapes = {node.name: node.meta["val"].shape for node in exported.graph.find_nodes(op="placeholder")}
    inputs = tuple(
        Input(name, datatype(example), tuple(size if type(size) is int else -1 for size in shapes[name]))
        for name, example in zip(names, examples, strict=True)
    )
    keywords = list(kwargs)

    def call(*inputs: torch.Tensor) -> Any:
        on_device = inputs if device == CPU else tuple(tensor.to(device) for tensor in inputs)
        positional = on_device[: len(args)]
        return module(*positional, **dict(zip(keywords, on_device[len(args) :], strict=True)))

    return Program(call, inputs, examples)


def datatype(tensor: torch.Tensor) -> str:
    """Return the protocol's datatype of a tensor.

    Raises:
        errors.Permanent: `UnsupportedModel`, no datatype holds its elements.
    """
    try:
        # Without elements, as only their type matters; a tensor without dimensions cannot be sliced.
        return tensors.datatype_of(tensor[:0].numpy() if tensor.dim() else tensor.reshape(1).numpy())
    except TypeError as error:
        raise errors.Permanent(
            "UnsupportedModel", f"no tensor datatype holds elements of type {tensor.dtype}"
        ) from error
