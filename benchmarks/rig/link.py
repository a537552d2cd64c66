"""A TCP link of a fixed speed in front of a server: `python link.py PORT TARGET_PORT BITS_PER_SECOND`.

A token bucket with a tenth of a second of burst slows the server's bytes only: a download takes as long as
over a wire of that speed, plus the loopback's own microseconds.
"""

import asyncio
import sys

from serving import clock

CHUNK = 64 * 1024
BURST_SECONDS = 0.1


class Bucket:
    """Shared by all connections, as a wire is."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = clock.monotonic()

    async def take(self, size: int) -> None:
        now = clock.monotonic()
        self._free_at = max(self._free_at, now - BURST_SECONDS) + size / self._rate
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bucket: Bucket | None) -> None:
    try:
        while data := await reader.read(CHUNK):
            if bucket is not None:
                await bucket.take(len(data))
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(port: int, target: int, bits_per_second: float) -> None:
    bucket = Bucket(bits_per_second / 8)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", target)
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(copy(reader, forth, None), copy(back, writer, bucket))

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
