"""Sends a probe or runs a hook: by HTTP, by a TCP connection, or by a command in the container."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.embedded.kubelet.container import exec_command
from serving.embedded.kubelet.container.exec_command import RunningContainer
from serving.embedded.kubelet.pod.probes import port_of
from serving.objects import Object

MAX_HEADERS = 64
"""The most headers of an answer that are read."""


@dataclass(frozen=True)
class ProbeAnswer:
    """The outcome of one probe; names of headers are in lower case."""

    problem: str = ""
    """Why the probe failed; empty where it succeeded."""
    headers: Mapping[str, str] = field(default_factory=dict)


async def send(target: RunningContainer, action: Mapping[str, Any], timeout: float) -> ProbeAnswer:
    """Return the outcome; a failure is an answer, not an exception."""
    try:
        if "exec" in action:
            code = await exec_command.run(target, list(action["exec"].get("command") or []), timeout)
            return ProbeAnswer("" if code == 0 else f"command exited with {code}")
        if "tcpSocket" in action:
            port = port_of(target.container, action["tcpSocket"]["port"])
            host = action["tcpSocket"].get("host") or target.address
            async with asyncio.timeout(timeout):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return ProbeAnswer()
        async with asyncio.timeout(timeout):
            return await _http_get(target.container, target.address, action["httpGet"])
    except TimeoutError:
        return ProbeAnswer(f"no answer within {timeout:g} s")
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        return ProbeAnswer(str(error) or type(error).__name__)


async def _http_get(container: Object, address: str, action: dict[str, Any]) -> ProbeAnswer:
    host = action.get("host") or address
    port = port_of(container, action["port"])
    path = action.get("path") or "/"
    context = None
    if action.get("scheme", "HTTP").upper() == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # as kubelet: the probe checks liveness, not identity
    headers = {
        "Host": f"{host}:{port}",
        "User-Agent": "slipway-probe",
        "Accept": "*/*",
        "Connection": "close",
    }
    headers |= {header["name"]: header["value"] for header in action.get("httpHeaders") or []}
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        status_line = (await reader.readuntil(b"\n")).decode(errors="replace").split(" ", 2)
        code = int(status_line[1]) if len(status_line) > 1 and status_line[1].isdigit() else 0
        problem = "" if 200 <= code < 400 else f"HTTP status {code}"
        return ProbeAnswer(problem, await _read_headers(reader))
    finally:
        writer.close()


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MAX_HEADERS):
        name, colon, value = (await reader.readline()).decode("latin-1").partition(":")
        if not colon:
            break
        headers[name.lower()] = value.strip()
    return headers
