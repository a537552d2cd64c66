"""What goes through the socket between us and a process of locust; nothing here reads or writes one.

To locust: JSON lines. First the plan, then commands, each with a number: {"level": ..., "number": n, "patience": seconds} sets a level and
takes at most so long to reach it; {"number": n, "patience": 0} sets none. Each is answered with its number and what is unanswered then.
From locust: frames of a type, a length and content: records as `RECORD` has them, gaps between tokens, texts of
errors, and JSON. Times are seconds on the machine's monotonic clock, which all its processes share.
"""

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tuner.load.plan import LoadPlan, LoadRequest

HEADER = struct.Struct("<cI")
RECORD = struct.Struct("<ddddII")
"""Of one request, in the order of `FIELDS`."""
FIELDS = (
    ("intended", "<f8"),
    ("done", "<f8"),
    ("behind", "<f8"),  # seconds after `intended` that it was really sent
    ("ttft", "<f8"),  # seconds after `intended`; negative where there was no token
    ("tokens", "<u4"),
    ("error", "<u4"),  # 0, or the number of its text
)
GAPS = struct.Struct("<dI")
"""When the stream ended, and how many doubles follow."""

RECORDS, TOKEN_GAPS, ERROR, SAID = b"R", b"G", b"E", b"S"


def frame(kind: bytes, content: bytes) -> bytes:
    """Return one frame."""
    return HEADER.pack(kind, len(content)) + content


def plan_line(
    plan: LoadPlan, *, url: str, share: tuple[int, int], timeout: float, most_unanswered: int
) -> bytes:
    """Return the first line: what to send, and that this is process `share[0]` of `share[1]`."""
    requests = [
        {**asdict(request), "body": base64.b64encode(request.body).decode()} for request in plan.requests
    ]
    return line(
        {
            **asdict(plan), "requests": requests, "url": url, "number": share[0], "processes": share[1],
            "timeout": timeout, "most_unanswered": most_unanswered,
        }
    )  # fmt: skip


def read_requests(said: dict[str, Any]) -> list[LoadRequest]:
    """Return the requests of a first line."""
    return [LoadRequest(**{**found, "body": base64.b64decode(found["body"])}) for found in said["requests"]]


def line(content: dict[str, Any]) -> bytes:
    """Return a JSON line."""
    return json.dumps(content).encode() + b"\n"


def frames(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Take the whole frames from the beginning of a buffer."""
    start = 0
    while len(buffer) - start >= HEADER.size:
        kind, length = HEADER.unpack_from(buffer, start)
        end = start + HEADER.size + length
        if len(buffer) < end:
            break
        yield kind, bytes(buffer[start + HEADER.size : end])
        start = end
    del buffer[:start]
