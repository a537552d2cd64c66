"""The import contracts of pyproject.toml hold, and a name of a class has one meaning."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_import_contracts_are_kept_by_every_module() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_public_class_has_a_name_of_its_own_except_an_implementation_of_a_protocol() -> None:
    places = defaultdict(list)
    for package in ("serving", "tuner", "autoscaler"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path.relative_to(ROOT).as_posix())
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    transformers = "serving/runtimes/transformers"
    assert shared == {
        "Decoder": [f"{transformers}/decoder.py", f"{transformers}/engine.py"],
        "Vocabulary": [f"{transformers}/engine.py", f"{transformers}/vocabulary.py"],
    }
