"""A build asks for a C compiler where the machine has none that works."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "tools" / "build_backend.py"


@pytest.fixture
def backend() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_backend", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(folder: Path, body: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
def test_compiler_is_required_from_the_index_where_the_machine_has_none(
    backend: ModuleType, hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.build_meta, hook, lambda _settings: [])
    monkeypatch.setenv("CC", str(tmp_path / "absent"))
    assert getattr(backend, hook)() == [backend.COMPILER]
    monkeypatch.setenv("CC", program(tmp_path, "raise SystemExit(1)  # the headers are missing"))
    assert getattr(backend, hook)() == [backend.COMPILER]
    monkeypatch.setenv("CC", f"{program(tmp_path, '')} -m64")
    assert getattr(backend, hook)() == []


def test_build_takes_the_compiler_of_the_machine_if_it_works(
    backend: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers = []
    monkeypatch.setattr(
        backend.build_meta, "build_wheel", lambda *_: compilers.append(backend.os.environ["CC"])
    )
    monkeypatch.setenv("CC", program(tmp_path, ""))
    backend.build_wheel("wheels")
    monkeypatch.setenv("CC", "/absent")
    backend.build_wheel("wheels")
    assert compilers == [str(tmp_path / "compiler"), f"{sys.executable} -m ziglang cc"]
