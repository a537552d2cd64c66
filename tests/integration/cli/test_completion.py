"""Completion with the names of a real API, and through a real bash."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from serving.cli.completion import shells
from serving.data_dir import DataDir
from serving.kube import Kube
from serving.resources import kinds

BASH = shutil.which("bash")
PRESS_TAB = r"""
source <(slipway completion bash)
COMP_LINE="$1" COMP_POINT=${#1}
_slipway slipway 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
async def namespace(kube: Kube) -> str:
    """A namespace with an Inference of two arms and a Model."""
    predictors = [{"name": name, "modelVersion": "v1"} for name in ("stable", "canary")]
    await kube.create(
        kinds.INFERENCE,
        {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": predictors}},
    )
    await kube.create(
        kinds.INFERENCE,
        {"metadata": {"name": "faces"}, "spec": {"framework": "sklearn", "predictors": predictors}},
    )
    await kube.create(kinds.MODEL, {"metadata": {"name": "forest"}, "spec": {}})
    return kube.namespace


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("get inf ", ["digits", "faces"]),
        ("get inf digits ", ["faces"]),
        ("describe inf/d", ["inf/digits"]),
        ("delete model f", ["forest"]),
        ("logs ", ["digits", "faces", "pod/", "job/", "deployment/"]),
        ("logs digits --predictor ", ["stable", "canary"]),
        ("logs digits --predictor=c", ["--predictor=canary"]),
        ("traffic get ", ["digits", "faces"]),
        ("traffic set digits ", ["stable=", "canary="]),
        ("traffic set digits stable=3 ", ["canary="]),
        ("top inferences f", ["faces"]),
        ("model list --model ", ["forest"]),
        ("get secrets ", []),
    ],
)
async def test_names_of_the_namespace_are_offered(
    line: str, offered: list[str], namespace: str, api_server: DataDir
) -> None:
    target = ["--kubeconfig", str(api_server.kubeconfig), "-n", namespace]
    assert sorted(shells.answer(["zsh", *target, *line.split(" ")])) == sorted(offered)
    command, *others = line.split(" ")
    assert sorted(shells.answer(["zsh", command, *target, *others])) == sorted(offered)


async def test_namespaces_are_offered_to_n(kube: Kube, api_server: DataDir) -> None:
    words = ["--kubeconfig", str(api_server.kubeconfig), "get", "-n", kube.namespace[:-1]]
    assert kube.namespace in shells.answer(["fish", *words])


async def test_a_kubeconfig_with_other_credentials_than_a_token_is_left_to_the_client(
    namespace: str, api_server: DataDir, tmp_path: Path
) -> None:
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"][0]["user"]["username"] = "unused"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    words = ["--kubeconfig", str(kubeconfig), "-n", namespace, "get", "model", ""]
    assert await asyncio.to_thread(shells.answer, ["zsh", *words]) == ["forest"]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_completes_a_line_with_the_printed_script(api_server: DataDir, tmp_path: Path) -> None:
    program = tmp_path / "slipway"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m serving.app "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "KUBECONFIG": str(api_server.kubeconfig)}

    def pressed(line: str) -> list[str]:
        assert BASH is not None
        ended = subprocess.run(
            [BASH, "--norc", "-c", PRESS_TAB, "bash", line],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[3],
        )
        return ended.stdout.split()

    assert pressed("slipway get namespaces defa") == ["default"]
    assert pressed("slipway get -o=jso") == ["json", "jsonpath="]
