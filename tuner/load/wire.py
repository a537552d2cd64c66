"""The protocol on the socket between a locust process and its parent. Pure.

To locust: JSON lines. First the plan, then numbered commands: {"level": ..., "number": n, "patience":
seconds} sets a level, and waits for so many seconds for the first answers of new users; {"number": n} sets
none. Each reply has the number and the intended times of the unanswered requests and, of these, of the
streams without a token. From locust: frames of type, length and content: records as in `RECORD`, gaps between
tokens, error texts, and JSON. Times are seconds on the monotonic clock, which all processes of a machine
share.
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
"""One request, in the order of `FIELDS`."""
FIELDS = (
    ("intended", "<f8"),
    ("done", "<f8"),
    ("behind", "<f8"),  # seconds after `intended` until it was sent
    ("ttft", "<f8"),  # seconds after `intended`; negative without a token
    ("tokens", "<u4"),
    ("error", "<u4"),  # 0, or the number of its text
)
GAPS = struct.Struct("<dI")
"""End of the stream, and the number of gaps that follow as doubles."""

RECORDS, TOKEN_GAPS, ERROR, REPLY = b"R", b"G", b"E", b"S"


def frame(kind: bytes, content: bytes) -> bytes:
    """Return one frame."""
    return HEADER.pack(kind, len(content)) + content


def plan_line(
    plan: LoadPlan, *, url: str, share: tuple[int, int], timeout: float, most_unanswered: int
) -> bytes:
    """Return the first line: the plan, for process `share[0]` of `share[1]`."""
    requests = [
        {**asdict(request), "body": base64.b64encode(request.body).decode()} for request in plan.requests
    ]
    return line(
        {
            **asdict(plan),
            "requests": requests,
            "url": url,
            "number": share[0],
            "processes": share[1],
            "timeout": timeout,
            "most_unanswered": most_unanswered,
        }
    )


def read_requests(plan: dict[str, Any]) -> list[LoadRequest]:
    """Return the requests of a plan line."""
    return [
        LoadRequest(**{**request, "body": base64.b64decode(request["body"])}) for request in plan["requests"]
    ]


def line(content: dict[str, Any]) -> bytes:
    """Return a JSON line."""
    return json.dumps(content).encode() + b"\n"


def frames(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Yield the complete frames at the beginning of a buffer, and remove them from it."""
    start = 0
    while len(buffer) - start >= HEADER.size:
        kind, length = HEADER.unpack_from(buffer, start)
        end = start + HEADER.size + length
        if len(buffer) < end:
            break
        yield kind, bytes(buffer[start + HEADER.size : end])
        start = end
    del buffer[:start]
