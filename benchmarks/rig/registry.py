"""A real registry (Debian's docker-registry) behind a link of fixed speed, with images of other builders."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rig.data_plane import proxies

CONFIG = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {root}}}, delete: {{enabled: true}}}}
http: {{addr: 127.0.0.1:{port}}}
"""
PROGRAMS = {"docker-registry": "docker-registry", "skopeo": "skopeo"}
"""Program to Debian package."""
_LINK = Path(__file__).with_name("link.py")


def missing() -> list[str]:
    return [package for program, package in PROGRAMS.items() if shutil.which(program) is None]


@contextlib.contextmanager
def running(folder: Path, bits_per_second: float) -> Iterator[tuple[int, int]]:
    """Give the ports of the registry itself and of the slow link to it."""
    port, slow = proxies.free_port(), proxies.free_port()
    config = folder / "registry.yml"
    config.write_text(CONFIG.format(root=folder / "registry", port=port))
    both = f"{proxies.PROXY_CORE},{proxies.LOAD_CORE}"
    with (
        proxies.running(
            both, port, "sh", "-c", f"exec docker-registry serve {config} 2> {folder}/registry.log"
        ),
        proxies.running(both, slow, sys.executable, str(_LINK), str(slow), str(port), str(bits_per_second)),
    ):
        yield port, slow


def compress(port: int, source: str, target: str) -> None:
    """Copy an image within the registry with gzip'd layers, as KubeDL's builder leaves them."""
    skopeo = [
        "skopeo",
        "--insecure-policy",
        "copy",
        "--quiet",
        "--src-tls-verify=false",
        "--dest-tls-verify=false",
    ]
    where = f"docker://127.0.0.1:{port}"
    subprocess.run(
        [*skopeo, "--dest-compress-format", "gzip", f"{where}/{source}", f"{where}/{target}"], check=True
    )
