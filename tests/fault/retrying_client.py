# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A client that compresses and restores a file, and retries calls that are UNAVAILABLE.

    retrying_client.py TARGET FILE FOLDER

Prints a line for each time it came through: the digests of the artefact and of the cache
that came back, and how often it had failed before. Ends when its input does.
"""

import hashlib
import sys
import threading
import time
from pathlib import Path

import kvcompress

PATIENCE = 20


def digest(path: Path) -> str:
    """Of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(target: str, source: Path, folder: Path) -> None:
    """Goes round and round."""
    enough = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        enough.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    artefact, cache = folder / "artefact", folder / "cache"
    failures = 0
    with kvcompress.Client(target, timeout=PATIENCE) as client:
        while not enough.is_set():
            try:
                client.compress(source, artefact, overwrite=True, codec="lossless")
                client.decompress(artefact, cache, overwrite=True)
                print(digest(artefact), digest(cache), failures, flush=True)
            except kvcompress.UnavailableError:
                failures += 1
                time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
