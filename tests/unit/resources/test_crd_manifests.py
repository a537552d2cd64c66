import runpy
from pathlib import Path

from serving.resources import catalog

ROOT = Path(__file__).parents[3]


def test_the_crds_in_manifests_are_what_the_types_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_crds.py"))
    files = dict(tool["render"](definition) for definition in catalog.DEFINITIONS)
    there = {path.name: path.read_text() for path in (ROOT / "manifests" / "crds").glob("*.yaml")}
    assert there == files, "run: .venv/bin/python tools/generate_crds.py"


def test_the_reference_in_docs_is_what_kinds_and_settings_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_reference.py"))
    there = {path.name: path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md")}
    assert there == tool["pages"](), "run: make docs"
