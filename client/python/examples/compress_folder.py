#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compresses every safetensors file of a folder into another, several at once, with asyncio.

    compress_folder.py SOURCE TARGET

TARGET is made where it is not there. Needs kv-compressd as `kvcompress.aio.Client()` does.
"""

import asyncio
import sys
from pathlib import Path

import kvcompress


async def compress_folder(source: Path, target: Path) -> None:
    """Compresses the files; prints the name and the ratio of each."""
    target.mkdir(parents=True, exist_ok=True)
    async with kvcompress.aio.Client() as client:
        paths = sorted(source.glob("*.safetensors"))
        calls = [client.compress(path, target / path.name) for path in paths]
        for path, result in zip(paths, await asyncio.gather(*calls), strict=True):
            print(path.name, result.report.compression_ratio)


if __name__ == "__main__":
    asyncio.run(compress_folder(Path(sys.argv[1]), Path(sys.argv[2])))
