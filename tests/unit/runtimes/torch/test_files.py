"""PyTorch programs as files, with weights inside or separate, and the files that are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serving import errors
from serving.images.documents.output_manifest import Input, OutputManifest
from serving.runtimes.loading import OpenFile, VerifiedModel
from tests.rig import optional_modules

if TYPE_CHECKING:
    from serving.runtimes.torch.files import Program

torch = optional_modules.torch()
files = optional_modules.lazy("serving.runtimes.torch.files")
server = optional_modules.lazy("serving.runtimes.torch.server")
networks = optional_modules.lazy("tests.objects.models.torch_networks")


def exported(net: Any) -> Any:
    sizes = {"x": {0: torch.export.Dim("batch", min=1)}}
    return torch.export.export(net.eval(), (torch.zeros(2, 4),), dynamic_shapes=sizes)


def opened(directory: Path) -> VerifiedModel:
    weights = (
        {"weights.pt": OpenFile(directory / "weights.pt")} if (directory / "weights.pt").exists() else {}
    )
    return VerifiedModel(OpenFile(directory / "model.pt2"), weights, OutputManifest())


def load(directory: Path) -> "Program":
    opened_files = opened(directory)
    try:
        return files.load(opened_files)
    finally:
        opened_files.close()


def write_in_one_file(net: Any, directory: Path) -> None:
    torch.export.save(exported(net), directory / "model.pt2")


def write_weights_apart(net: Any, directory: Path) -> None:
    files.save(exported(net), directory)


@pytest.mark.parametrize("write", [write_in_one_file, write_weights_apart])
def test_a_loaded_program_computes_the_same_as_the_network(
    write: Callable[[Any, Path], None], tmp_path: Path
) -> None:
    net = networks.Tied()
    write(net, tmp_path)
    program = load(tmp_path)
    rows = torch.rand(7, 4)
    with torch.inference_mode():
        assert torch.equal(program.call(rows), net(rows))
    assert program.inputs == (Input("x", "FP32", (-1, 4)),)


def test_separate_weights_are_mapped_and_not_in_the_program(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 300_000)
    write_weights_apart(networks.Renamed(net), tmp_path)
    assert (
        (tmp_path / "model.pt2").stat().st_size
        < 100_000
        < 4_000_000
        < (tmp_path / "weights.pt").stat().st_size
    )
    program = load(tmp_path)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "weights.pt" in line]
    assert mapped
    with torch.inference_mode():
        assert torch.equal(program.call(torch.ones(1, 4)), net(torch.ones(1, 4)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt2", "weights.pt"]


def test_weights_are_separate_when_the_state_has_scalars(tmp_path: Path) -> None:
    net = networks.Normalised()
    net(torch.rand(5, 4))  # the normalisation counts a batch
    write_weights_apart(net, tmp_path)
    program, rows = load(tmp_path), torch.rand(3, 4)
    with torch.inference_mode():
        assert torch.equal(program.call(rows), net(rows))
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert (state["scale"].item(), state["norm.num_batches_tracked"].item()) == (2.5, 1)


def broken_archive(directory: Path) -> None:
    (directory / "model.pt2").write_bytes(b"PK\x03\x04 no archive")


def weights_with_code(directory: Path) -> None:
    write_weights_apart(networks.Tied(), directory)
    torch.save({"kept": print}, directory / "weights.pt")


def weights_of_another(directory: Path) -> None:
    write_weights_apart(networks.Tied(), directory)
    torch.save({"kept": torch.zeros(4)}, directory / "weights.pt")


def a_number_as_input(directory: Path) -> None:
    torch.export.save(torch.export.export(networks.Counting(), (torch.ones(2), 3)), directory / "model.pt2")


def no_datatype(directory: Path) -> None:
    half = torch.ones(2, 4, dtype=torch.bfloat16)
    torch.export.save(
        torch.export.export(networks.Renamed(torch.nn.ReLU()), (half,)), directory / "model.pt2"
    )


@pytest.mark.parametrize(
    ("write", "reason", "says"),
    [
        (broken_archive, "LoadFailed", "the model does not load: "),
        (weights_with_code, "LoadFailed", "UnpicklingError: Weights only load failed"),
        (weights_of_another, "LoadFailed", "Missing key"),
        (a_number_as_input, "UnsupportedModel", "the program must take tensors"),
        (no_datatype, "UnsupportedModel", "no tensor datatype holds elements of type torch.bfloat16"),
    ],
)
def test_an_invalid_program_is_refused(
    write: Callable[[Path], None], reason: str, says: str, tmp_path: Path
) -> None:
    write(tmp_path)
    with pytest.raises(errors.Permanent, match=says) as caught:
        load(tmp_path)
    assert caught.value.reason == reason


def test_a_gpu_that_pytorch_cannot_use_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLIPWAY_DEVICE", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        errors.Permanent, match=r"SLIPWAY_DEVICE is cuda, and this PyTorch .* finds no usable GPU"
    ) as caught:
        server._framework()
    assert caught.value.reason == "NoGpu"


@pytest.fixture(scope="module", autouse=True)
def _gpu() -> None:
    """Open the GPU before a test's descriptors are counted: CUDA keeps its own until the process ends."""
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")


@pytest.mark.parametrize("write", [write_in_one_file, write_weights_apart])
def test_a_program_computes_the_same_on_the_gpu(write: Callable[[Any, Path], None], tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    net, rows = networks.Tied(), torch.rand(3, 4)
    write(net, tmp_path)
    opened_files = opened(tmp_path)
    program = files.load(opened_files, "cuda")
    opened_files.close()
    with torch.inference_mode():
        output = program.call(rows)
        assert output.device.type == "cuda"
        assert torch.allclose(output.cpu(), net.eval()(rows), atol=1e-4)
    assert program.examples[0].device.type == "cpu"
