# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What one thread of a command does alone: it bounds what all the others can bring."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

CODECS = ("int4", "int8", "ecsq:contract", "lossless", "klt:contract", "klt:max", "auto")
THREADS = 16
INTERVAL = 0.002  # seconds between two looks
_ROUNDS = 3


def shares(command: list[str | Path]) -> list[float]:
    """Of the processor time of a command, that of each of its threads, the busiest first.

    As of the last look at it: what a thread does within two milliseconds of its end is not seen.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    nanoseconds: dict[str, int] = {}
    while process.poll() is None:
        for thread in Path(f"/proc/{process.pid}/task").glob("*"):
            try:
                nanoseconds[thread.name] = int((thread / "schedstat").read_text().split()[0])
            except (OSError, IndexError):
                continue  # it has ended
        time.sleep(INTERVAL)
    assert process.returncode == 0, command
    whole = sum(nanoseconds.values())
    return sorted((each / whole for each in nanoseconds.values()), reverse=True)


def table(binary: Path, cache: Path) -> Iterator[str]:
    """The least share of the busiest thread in some rounds, both ways, from file to file."""
    yield f"| codec | busiest of {THREADS} threads: compress | restore |\n| --- | --- | --- |\n"
    artefact, restored = cache.with_suffix(".kvc"), cache.with_suffix(".restored")
    flags = ["-threads", str(THREADS), "-force", "-quiet"]
    for codec in CODECS:
        there: list[str | Path] = [binary, "-input", cache, "-output", artefact, "-codec", codec]
        back: list[str | Path] = [binary, "-decompress", "-input", artefact, "-output", restored]
        least = [
            min(shares([*command, *flags])[0] for _ in range(_ROUNDS)) for command in (there, back)
        ]
        yield f"| `{codec}` | {least[0]:.0%} | {least[1]:.0%} |\n"
    artefact.unlink()
    restored.unlink()
