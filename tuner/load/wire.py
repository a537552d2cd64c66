"""The protocol on the socket between a locust process and its parent. Pure.

To locust: JSON lines. First the plan, then numbered commands: {"level": ..., "number": n, "patience":
seconds} sets a level, and waits for at most so many seconds for the first answers of new users; {"number": n}
sets no level. Each command has a reply with its number, the intended times of the unanswered requests, and
those of the unanswered streams without a token. From locust: frames with `HEADER` and content, whose kinds
follow it here. Times are seconds on the monotonic clock, which all processes of a machine share.
"""

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tuner.load.plan import LoadPlan, LoadRequest

HEADER = struct.Struct("<cI")
"""The kind of a frame, and the length of its content in bytes."""
RECORDS, TOKEN_GAPS, ERROR, REPLY = b"R", b"G", b"E", b"S"
"""The kinds of frames. Their contents, in the same order: any number of `RECORD`; `GAPS`, then the gaps
between the tokens of a stream, in seconds, as doubles; one error text; one reply as JSON."""
RECORD = struct.Struct("<ddddIII")
"""One request, in the order of `FIELDS`."""
FIELDS = (
    ("intended", "<f8"),  # scheduled time
    ("done", "<f8"),  # time of the end
    ("behind", "<f8"),  # seconds after `intended` until it was sent
    ("ttft", "<f8"),  # seconds after `intended`; negative without a token
    ("tokens", "<u4"),
    ("prompt_tokens", "<u4"),  # 0 if unknown
    ("error", "<u4"),  # 0, or the number of its text: the n-th ERROR frame has number n
)
GAPS = struct.Struct("<dI")
"""Time of the stream's end, and the number of gaps that follow."""
ERROR_CHARACTERS = 200
"""Most characters of an error text."""
MOST_ERROR_TEXTS = 65
"""Most error texts of a process: a server with varying errors must not fill the memory."""
MOST_FRAME_BYTES = {
    RECORDS: 16 * 1024 * 1024,
    TOKEN_GAPS: 16 * 1024 * 1024,
    ERROR: 4 * ERROR_CHARACTERS,
    REPLY: 16 * 1024 * 1024,
}
"""Most bytes of a frame's content by its kind: 380,000 records, which is a minute without a batch at 6,000
requests/s, or the intended times of 800,000 unanswered requests."""


def frame(kind: bytes, content: bytes) -> bytes:
    """Return one frame."""
    return HEADER.pack(kind, len(content)) + content


def plan_line(
    plan: LoadPlan, *, url: str, number: int, processes: int, timeout: float, most_unanswered: int
) -> bytes:
    """Return the first line: the plan of one locust process.

    Args:
        plan: the requests and their timing, of all processes.
        url: scheme, host and port of the target.
        number: of this process, from 0.
        processes: number of locust processes.
        timeout: of a request, in seconds.
        most_unanswered: greatest number of unanswered requests of this process.
    """
    requests = [
        {**asdict(request), "body": base64.b64encode(request.body).decode()} for request in plan.requests
    ]
    return line(
        {
            **asdict(plan),
            "requests": requests,
            "url": url,
            "number": number,
            "processes": processes,
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
    """Yield the complete frames at the beginning of a buffer, and remove them from it.

    Raises:
        ValueError: a frame has an unknown kind, or a length above MOST_FRAME_BYTES.
    """
    start = 0
    while len(buffer) - start >= HEADER.size:
        kind, length = HEADER.unpack_from(buffer, start)
        if length > MOST_FRAME_BYTES.get(kind, -1):
            raise ValueError(f"a frame of kind {kind!r} with {length} bytes")
        end = start + HEADER.size + length
        if len(buffer) < end:
            break
        yield kind, bytes(buffer[start + HEADER.size : end])
        start = end
    del buffer[:start]
