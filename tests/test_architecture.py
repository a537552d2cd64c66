"""The import contracts of pyproject.toml hold, and so do rules that no import shows."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from serving.resources import kinds

ROOT = Path(__file__).parent.parent


def test_import_contracts_are_kept_by_every_module() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_kind_of_slipway_is_named_by_no_module_of_the_api_server() -> None:
    own = {name for name, value in vars(kinds).items() if value in kinds.OWN}
    plurals = {kind.plural for kind in kinds.OWN}
    named = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (ROOT / "serving/embedded/apiserver").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Constant) and node.value in plurals)
        or (isinstance(node, ast.Attribute) and node.attr in own)
        or (isinstance(node, ast.alias) and node.name in own)
    ]
    assert (len(own), named) == (len(kinds.OWN), [])


def test_a_public_class_has_a_name_of_its_own_except_an_implementation_of_a_protocol() -> None:
    """Classes of one test file or of one benchmark are seen there alone, and may have any name."""
    places = defaultdict(list)
    for package in ("serving", "tuner", "autoscaler", "benchmarks/rig", "tests"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name.startswith(("test_", "conftest")):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path.relative_to(ROOT).as_posix())
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    transformers = "serving/runtimes/transformers"
    assert shared == {
        "Decoder": [f"{transformers}/decoder.py", f"{transformers}/engine.py"],
        "Vocabulary": [f"{transformers}/engine.py", f"{transformers}/vocabulary.py"],
    }
