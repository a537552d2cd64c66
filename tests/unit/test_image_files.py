"""The Containerfiles of Slipway's images, what they install, and the arguments of their build."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from serving.embedded.kubelet.runtimes import RUNTIMES
from serving.resources.names import RUNTIME_IMAGE_PREFIX

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "manifests" / "images"
NAMES = sorted(file.name.removesuffix(".Containerfile") for file in FOLDER.glob("*.Containerfile"))
RUNTIME_NAMES = sorted(image.removeprefix(RUNTIME_IMAGE_PREFIX) for image in RUNTIMES)
DISTRIBUTIONS = {"google": "protobuf", "sklearn": "scikit-learn", "prometheus_client": "prometheus-client"}
"""Distributions with other names than their modules."""
SHARED = (".", "batching", "grpc", "open_inference")
"""Folders of `serving/runtimes` that every model server imports."""
PINNED = re.compile(r"^([a-z0-9-]+)(?:\[[^]]*\])?==([^ ;]+)", re.MULTILINE)
DIGEST = "@sha256:" + "0" * 64


def stages(name: str) -> list[list[str]]:
    """Return the instructions before the first stage, and those of each stage, in joined lines."""
    text = (FOLDER / f"{name}.Containerfile").read_text().replace("\\\n", " ")
    instructions: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("FROM "):
            instructions.append([])
        if line and not line.startswith("#"):
            instructions[-1].append(line)
    return instructions


def argument(instructions: list[str], keyword: str) -> str:
    (line,) = (line for line in instructions if line.startswith(f"{keyword} "))
    return line.removeprefix(f"{keyword} ")


def pinned(file: Path) -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    for name, version in PINNED.findall(file.read_text()):
        versions.setdefault(name, set()).add(version)
    return versions


def requirements(name: str) -> dict[str, set[str]]:
    return pinned(FOLDER / "requirements" / f"{name}.txt")


def test_every_runtime_and_the_components_have_an_image() -> None:
    assert sorted([*RUNTIME_NAMES, "components", "transfer"]) == NAMES
    assert {file.stem for file in (FOLDER / "requirements").iterdir()} == {*NAMES, "build"}


@pytest.mark.parametrize("name", NAMES)
def test_bases_are_arguments_without_a_default(name: str) -> None:
    before, build, last = stages(name)
    assert before == ["ARG BASE", "ARG BUILD_BASE"]
    assert build[0] == "FROM ${BUILD_BASE} AS build"
    assert last[0] == "FROM ${BASE}"


@pytest.mark.parametrize("name", NAMES)
def test_the_last_stage_runs_nothing_and_has_the_installation_alone(name: str) -> None:
    last = stages(name)[-1]
    assert not any(line.startswith(("RUN", "ADD")) for line in last)
    assert argument(last, "COPY") == "--from=build /opt/slipway /opt/slipway"


@pytest.mark.parametrize("name", NAMES)
def test_an_image_runs_as_a_user_that_is_a_number_and_not_root(name: str) -> None:
    # The kubelet cannot know of a name whether it is root (runAsNonRoot).
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", argument(stages(name)[-1], "USER"))


@pytest.mark.parametrize("name", NAMES)
def test_an_image_installs_and_starts_what_its_name_says(name: str) -> None:
    build, last = stages(name)[1:]
    assert argument(build, "RUN") == f"sh /source/manifests/images/install.sh {name}"
    entry_point = json.loads(argument(last, "ENTRYPOINT"))
    if name == "components":
        assert entry_point == ["slipway"]
    elif name == "transfer":
        assert entry_point == ["python3"]
    else:
        # On one machine the same image name starts the same program, in this interpreter.
        command = RUNTIMES[RUNTIME_IMAGE_PREFIX + name].command
        assert entry_point == ["python3", *command[1:]]


@pytest.mark.parametrize("name", NAMES)
def test_labels_name_the_version_the_revision_and_the_license(name: str) -> None:
    label = argument(stages(name)[-1], "LABEL")
    for key, value in {"version": "${VERSION}", "revision": "${REVISION}", "licenses": "Apache-2.0"}.items():
        assert f'org.opencontainers.image.{key}="{value}"' in label


@pytest.mark.parametrize("name", [*NAMES, "build"])
def test_requirements_have_the_versions_of_the_lock_and_hashes(name: str) -> None:
    lock, own = pinned(ROOT / "requirements.lock"), requirements(name)
    assert {package: versions for package, versions in own.items() if versions != lock.get(package)} == {
        package: versions for package, versions in own.items() if package not in lock
    }
    text = (FOLDER / "requirements" / f"{name}.txt").read_text()
    blocks = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) >= len(own) > 0
    assert all("--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_installs_no_build_tool(name: str) -> None:
    # setuptools and pytest are libraries, of PyTorch and Locust.
    tools = {"pip", "uv", "wheel", "grpcio-tools", "mypy", "ruff"}
    assert not tools & set(requirements(name))


def imported(folder: Path) -> set[str]:
    """Return the distributions that the modules of a folder import, at any place in them."""
    modules = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                modules.add(node.module)
    tops = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names - {"serving"}
    return {DISTRIBUTIONS.get(top, top) for top in tops}


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("sklearn", (*SHARED, "sklearn")),
        ("pytorch", (*SHARED, "torch")),
        ("transformers", (*SHARED, "torch", "transformers", "transformers/openai")),
    ],
)
def test_a_model_server_has_what_it_imports(name: str, folders: tuple[str, ...]) -> None:
    needed = set[str]().union(*(imported(ROOT / "serving" / "runtimes" / folder) for folder in folders))
    assert {"uvicorn", "orjson", "protobuf"} <= needed
    # Of PyTorch the builder names the build.
    assert needed - {"torch"} - set(requirements(name)) == set()


def test_the_image_of_transfers_has_what_its_programs_import() -> None:
    program = (
        "import sys, importlib.metadata as metadata\n"
        "import serving.images.capturing.process, serving.images.copying.process\n"
        "owners = metadata.packages_distributions()\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*sorted({owner.lower() for top in tops for owner in owners.get(top, ())}))"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout
    needed = {name.replace("_", "-") for name in output.split()} - {"slipway", "setuptools"}
    needed -= {"brotli"}  # aiohttp takes it where it is
    assert {"aiohttp", "zstandard"} <= needed
    assert needed - set(requirements("transfer")) == set()


def test_the_context_of_the_images_has_the_build_backend() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    context = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line[:1] == "!"]
    [folder] = build["backend-path"]
    assert f"{folder}/{build['build-backend']}.py" in context


def test_the_context_of_the_images_has_the_targets_of_links_in_packages() -> None:
    # setuptools leaves a link without its target out of the wheel, and reports nothing.
    context = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line[:1] == "!"]
    packages = [ROOT / name for name in ("autoscaler", "serving", "tuner")]
    links = [path for package in packages for path in package.rglob("*") if path.is_symlink()]
    targets = {str(path.resolve().relative_to(ROOT)) for path in links}
    assert {"manifests/engines", "manifests/samples"} <= targets
    assert targets - set(context) == set()


def test_the_components_have_every_dependency_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^a-zA-Z0-9-]", dependency)[0] for dependency in project["dependencies"]}
    assert needed - set(requirements("components")) == set()


@pytest.mark.parametrize(
    ("bases", "message"),
    [
        (
            {"BASE": "python:3.12-slim", "BUILD_BASE": f"python{DIGEST}"},
            "BASE=python:3.12-slim has no digest",
        ),
        ({"BASE": f"python{DIGEST}", "BUILD_BASE": "python:3.12"}, "BUILD_BASE=python:3.12 has no digest"),
        ({"BASE": f"python{DIGEST}"}, "BASE and BUILD_BASE need each other"),
    ],
)
def test_a_build_is_refused_when_a_base_could_change(bases: dict[str, str], message: str) -> None:
    settings = {"PREFIX": "localhost/slipway", "TAG": "0", "IMAGES": "sklearn", "BUILDAH": "false", **bases}
    environment = {name: value for name, value in os.environ.items() if name not in {"BASE", "BUILD_BASE"}}
    script = [str(FOLDER / "build.sh")]
    ended = subprocess.run(
        script, env=environment | settings, capture_output=True, text=True, check=False, timeout=30
    )
    assert ended.returncode == 1
    assert message in ended.stderr


def test_the_image_of_the_components_installs_the_named_drivers_of_storages(tmp_path: Path) -> None:
    arguments = tmp_path / "arguments"
    buildah = tmp_path / "buildah"
    buildah.write_text(f'#!/bin/sh\n[ "$1" != build ] || printf "%s\\n" "$@" >{arguments}\n')
    buildah.chmod(0o755)
    command = ["make", "--no-print-directory", "images", "IMAGES=components", f"BUILDAH={buildah}"]
    bases = [f"BASE=python{DIGEST}", f"BUILD_BASE=python{DIGEST}"]
    subprocess.run([*command, *bases, "STORAGE_DRIVERS=gcsfs adlfs"], cwd=ROOT, check=True, timeout=30)
    assert "STORAGE_DRIVERS=gcsfs adlfs" in arguments.read_text().splitlines()
    assert "ARG STORAGE_DRIVERS" in stages("components")[1]
    assert "$STORAGE_DRIVERS" in (FOLDER / "install.sh").read_text()
