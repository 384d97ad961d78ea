# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A TCP proxy whose link carries so many bits a second, in each direction and over all connections.

    python link.py PORT TARGET_PORT BITS

A token bucket: what was not sent for up to a hundredth of a second may be sent at once.
"""

import asyncio
import sys
import time

_CHUNK = 1 << 18
_BURST = 0.01  # seconds


class Bucket:
    """How much one direction of a link may carry."""

    def __init__(self, bytes_per_second: float) -> None:
        """Begins full."""
        self._rate = bytes_per_second
        self._free_at = 0.0

    async def take(self, size: int) -> None:
        """Waits until so many bytes have gone over the link."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now - _BURST) + size / self._rate
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, bucket: Bucket) -> None:
    """Carries what comes until it ends."""
    try:
        while data := await source.read(_CHUNK):
            await bucket.take(len(data))
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


async def serve(port: int, target: int, bits: float) -> None:
    """Runs until it is killed."""
    there, back = Bucket(bits / 8), Bucket(bits / 8)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target, limit=_CHUNK)
        await asyncio.gather(pump(reader, far_writer, there), pump(far_reader, writer, back))

    async with await asyncio.start_server(connected, "127.0.0.1", port, limit=_CHUNK) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
