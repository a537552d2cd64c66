import runpy
from pathlib import Path

from serving.resources import catalog

ROOT = Path(__file__).parents[3]


def test_crd_manifests_match_the_types() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_crds.py"))
    files = dict(tool["render"](definition) for definition in catalog.DEFINITIONS)
    crds = ROOT / "manifests" / "install" / "crds"
    on_disk = {path.name: path.read_text() for path in crds.glob("*.yaml")}
    assert on_disk == files, "run: .venv/bin/python tools/generate_crds.py"


def test_reference_docs_match_kinds_and_settings() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_reference.py"))
    on_disk = {path.name: path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md")}
    assert on_disk == tool["pages"](), "run: make docs"
