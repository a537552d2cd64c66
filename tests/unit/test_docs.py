"""The documentation names what exists: commands, files and links."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from serving.cli.command_group import Group
from serving.cli.commands import COMMANDS
from serving.resources import catalog, kinds

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
"""Pages that no program generates."""
COLUMNS = 110
DECISIONS = [page for page in (ROOT / "docs" / "decisions").glob("*.md") if page.name != "README.md"]
DECISION_LINES = 60
"""A page; longer tables are in `benchmarks/results`."""
CODE = re.compile(r"`[^`]*`")
PATH = re.compile(r"`((?:serving|tuner|autoscaler|benchmarks|tests|tools|manifests)/[\w./-]+)`")
PROOF = re.compile(r"`(test_\w+)::(test_\w+)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def commands(group: Group = COMMANDS, before: str = "") -> Iterator[str]:
    """Return every command, such as `tune report`."""
    for name, member in group.members.items():
        path = f"{before}{name}"
        if isinstance(member, Group):
            yield from commands(member, f"{path} ")
        else:
            yield path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_file(page: Path) -> None:
    broken = [
        link for link in LINK.findall(CODE.sub("", page.read_text())) if not (page.parent / link).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_line_of_text_is_as_short_as_in_the_code(page: Path) -> None:
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#"))]
    assert [line for line in lines if len(line) > COLUMNS and " " in line.strip()[:COLUMNS]] == []


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_one_page_with_its_measurement(page: Path) -> None:
    text = page.read_text()
    parts = ("Context", "Decision", "Measurement", "Consequences")
    assert [part for part in parts if f"**{part}.**" not in text] == []
    assert len(text.splitlines()) <= DECISION_LINES


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    assert [page.name for page in DECISIONS if f"]({page.name})" not in index] == []


def test_every_command_is_in_the_reference_of_the_command_line() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    listed = list(commands())
    assert len(listed) > 20
    assert [name for name in listed if not re.search(rf"`(?:slipway )?{name}\b", text)] == []


def test_every_kind_is_explained() -> None:
    text = (ROOT / "docs" / "kinds.md").read_text()
    assert [d.kind.kind for d in catalog.DEFINITIONS if d.kind.kind not in text] == []


def test_the_objects_of_the_page_on_clusters_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(), re.DOTALL)
    read = [obj for block in blocks for obj in yaml.safe_load_all(block)]
    objects = [obj for obj in read if obj.get("apiVersion") == kinds.MODEL.api_version]
    specs = {definition.kind.kind: definition.spec for definition in catalog.DEFINITIONS}
    assert [obj["kind"] for obj in objects] == ["Model", "ModelVersion", "Inference"]
    for obj in objects:
        specs[obj["kind"]].model_validate(obj["spec"])


def test_every_file_that_the_readme_names_exists() -> None:
    named = re.findall(r"manifests/samples/[\w.-]+|docs/[\w/.-]+\.md", (ROOT / "README.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_row_about_clients_names_a_test_that_exists() -> None:
    modules = {path.stem: path.read_text() for path in (ROOT / "tests" / "integration").rglob("test_*.py")}
    lines = (ROOT / "docs" / "clients.md").read_text().splitlines()
    rows = [
        line for line in lines if line.startswith("| ") and not line.startswith(("| works |", "| refused |"))
    ]
    assert len(rows) > 40
    assert [row for row in rows if not PROOF.search(row.rsplit("|", 2)[1])] == []
    proofs = {match for row in rows for match in PROOF.findall(row)}
    assert {f"{m}::{n}" for m, n in proofs if f"def {n}(" not in modules.get(m, "")} == set()


CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names the files of older releases


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_path_of_the_repository_exists(page: Path) -> None:
    text = page.read_text()
    assert [path for path in PATH.findall(text) if not (ROOT / path).exists()] == []
