"""The command line, run in a thread of the test, beside the controllers that it waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serving.cli import main

Ended = tuple[int, str, str]
"""Exit code, standard output and standard error."""
Slipway = Callable[..., Awaitable[Ended]]


def command_line(kubeconfig: Path, namespace: str, capsys: pytest.CaptureFixture[str]) -> Slipway:
    """Return a function that runs `slipway ARGUMENTS...` in a namespace."""

    def run(arguments: tuple[str, ...]) -> int:
        with pytest.raises(SystemExit) as ended:
            main.run([*arguments, "--kubeconfig", str(kubeconfig), "-n", namespace])
        return int(ended.value.code or 0)

    async def slipway(*arguments: str) -> Ended:
        capsys.readouterr()
        code = await asyncio.to_thread(run, arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return slipway
