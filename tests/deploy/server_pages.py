# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Saves the pages of a server that is in use, for pictures: see screenshots."""

import sys
import tempfile
import time
from pathlib import Path

from observed import SAMPLE, attempt
from server_process import ServerProcess

import kvcompress

CODECS = ("auto", "auto", "int8", "lossless", "ecsq", "int4-hadamard")
# Seconds of load before the pages are saved, and the pause between calls.
LOAD, PAUSE = 40, 0.1


def use(server: ServerProcess, seconds: float) -> None:
    """Compresses, restores and measures; one call in a hundred is a mistake."""
    give_up = time.monotonic() + seconds
    calls = 0
    with kvcompress.Client(server.addresses[0]) as client:
        artefact = client.compress(SAMPLE, codec="int8").artefact
        assert artefact is not None
        while time.monotonic() < give_up:
            client.compress(SAMPLE, codec=CODECS[calls % len(CODECS)])
            client.decompress(artefact)
            if calls % 50 == 0:
                attempt(lambda: client.compress(artefact))
            calls += 1
            time.sleep(PAUSE)


def main() -> None:
    """Writes NAME.html for each page into a folder."""
    folder = Path(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else LOAD
    with tempfile.TemporaryDirectory() as name:
        server = ServerProcess([], {}, Path(name))
        try:
            server.wait_until_serving()
            use(server, seconds)
            for path, file in (("/", "server"), ("/statusz", "statusz")):
                status, _, text = server.get(path)
                assert status == 200, path
                (folder / f"{file}.html").write_text(text)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
