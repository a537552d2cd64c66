"""An open loop of streamed chats at given moments, in a separate process; prints one JSON line for each.

    python chat_load.py URL < chats

Standard input is a JSON array of [moment, words, tokens], with moments in seconds of the machine's monotonic
clock. A line of output has [moment, seconds until the first token, seconds until the end, status]; status 0
is an error of the connection, or an answer that is not complete in time.
"""

import asyncio
import gc
import json
import sys
import time
from urllib.parse import urlsplit

PATIENCE_SECONDS = 120.0


async def chat(url: str, moment: float, words: int, tokens: int) -> None:
    where = urlsplit(url)
    content = "word " * words
    body = json.dumps(
        {"messages": [{"role": "user", "content": content}], "stream": True, "max_tokens": tokens}
    ).encode()
    head = (
        f"POST {where.path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    status, first = 0, 0.0
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(head.encode() + body)
            answered = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
            seen = b""
            while part := await reader.read(65536):
                seen = (seen + part)[-64:]
                if not first and b"data:" in part:
                    first = time.monotonic() - moment
            status = answered if answered != 200 or b"[DONE]" in seen else 0
            writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
        pass
    print(json.dumps([moment, round(first, 4), round(time.monotonic() - moment, 4), status]), flush=True)


async def main(url: str) -> None:
    async with asyncio.TaskGroup() as group:
        for moment, words, tokens in json.load(sys.stdin):
            await asyncio.sleep(max(moment - time.monotonic(), 0.0))
            group.create_task(chat(url, moment, words, tokens))


if __name__ == "__main__":
    gc.disable()  # a collection would delay requests
    asyncio.run(main(sys.argv[1]))
