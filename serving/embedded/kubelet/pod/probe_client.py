"""Asks one probe once."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.embedded.kubelet.container import exec_command
from serving.embedded.kubelet.container.exec_command import Target
from serving.embedded.kubelet.pod.probes import port_of
from serving.objects import Object

MOST_HEADERS = 64
"""Of a probe's answer that are read."""


@dataclass(frozen=True)
class Answer:
    """`problem` is empty where the probe succeeded; names of headers are in lower case."""

    problem: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


async def ask(target: Target, action: Mapping[str, Any], timeout: float) -> Answer:
    """Return what the probe found. A failure is an answer: nothing is raised."""
    try:
        if "exec" in action:
            code = await exec_command.run(target, list(action["exec"].get("command") or []), timeout)
            return Answer("" if code == 0 else f"command exited with {code}")
        if "tcpSocket" in action:
            port = port_of(target.container, action["tcpSocket"]["port"])
            host = action["tcpSocket"].get("host") or target.address
            async with asyncio.timeout(timeout):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return Answer()
        async with asyncio.timeout(timeout):
            return await _http(target.container, target.address, action["httpGet"])
    except TimeoutError:
        return Answer(f"no answer within {timeout:g} s")
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        return Answer(str(error) or type(error).__name__)


async def _http(container: Object, address: str, action: dict[str, Any]) -> Answer:
    host = action.get("host") or address
    port = port_of(container, action["port"])
    path = action.get("path") or "/"
    context = None
    if action.get("scheme", "HTTP").upper() == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # as kubelet: the probe asks for life, not for identity
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
        status = (await reader.readuntil(b"\n")).decode(errors="replace").split(" ", 2)
        code = int(status[1]) if len(status) > 1 and status[1].isdigit() else 0
        return Answer("" if 200 <= code < 400 else f"HTTP status {code}", await _headers(reader))
    finally:
        writer.close()


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        name, colon, value = (await reader.readline()).decode("latin-1").partition(":")
        if not colon:
            break
        found[name.lower()] = value.strip()
    return found
