"""Whether a request fits what a model takes and gives. Pure; the same rules for every framework."""

from collections.abc import Sequence

from serving.images.documents.output_manifest import Input
from serving.runtimes.model import Output
from serving.runtimes.protocol import Request, Tensor, Wanted
from serving.runtimes.tensors import Array, bad


def arrays(request: Request, inputs: Sequence[Input]) -> list[Array]:
    """Return the request's arrays in the order of `inputs`.

    Raises:
        errors.ApiError: 400, another tensor, datatype or shape; the message has the field, the rule and the value.
    """
    if len(request.inputs) != len(inputs):
        given = [tensor.name for tensor in request.inputs]
        names = ", ".join(one.name for one in inputs)
        raise bad("inputs", "must be one tensor" if len(inputs) == 1 else f"must be {names}", given)
    wanted = {one.name: one for one in inputs}
    found = {}
    for i, tensor in enumerate(request.inputs):
        if tensor.name not in wanted:
            rule = f"must be {' or '.join(repr(name) for name in wanted)}"
            raise bad(f"inputs[{i}].name", rule, tensor.name)
        _check(f"inputs[{i}]", tensor, wanted[tensor.name])
        found[tensor.name] = tensor.array
    return [found[one.name] for one in inputs]


def _check(field: str, tensor: Tensor, wanted: Input) -> None:
    if tensor.datatype != wanted.datatype:
        raise bad(f"{field}.datatype", f"must be {wanted.datatype}", tensor.datatype)
    shape = tensor.array.shape
    fits = len(shape) == len(wanted.shape) and all(
        want in {-1, got} for want, got in zip(wanted.shape, shape, strict=True)
    )
    if not fits or 0 in shape:
        raise bad(f"{field}.shape", f"must be {list(wanted.shape)}, where -1 is 1 or more", list(shape))


def wanted(request: Request, outputs: Sequence[Output]) -> tuple[Wanted, ...]:
    """Return the outputs that the request asks for: all of them where it names none.

    Raises:
        errors.ApiError: 400, an output that the model does not have.
    """
    names = [output.name for output in outputs]
    if request.outputs is None:
        return tuple(Wanted(name, request.binary) for name in names)
    for i, one in enumerate(request.outputs):
        if one.name not in names:
            raise bad(f"outputs[{i}].name", f"must be one of {', '.join(names)}", one.name)
    return request.outputs


def rows(request: Request) -> int:
    """Return the size of the batch, as far as the request's own shapes say."""
    return max((tensor.array.shape[0] for tensor in request.inputs if tensor.array.shape), default=0)
