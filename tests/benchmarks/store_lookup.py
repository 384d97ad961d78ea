#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How long kvcompress.store takes to look blocks up, to save, and to evict.

    tests/benchmarks/store_lookup.py [--folder FOLDER]

Needs the package kvcompress. Look-ups are of 1,000 blocks of 32 artefacts, as of a prompt of 16,000
tokens. Next to them are those of files that have the blocks' names, which is the least that a file
system takes. An eviction begins with a listing, here of 10,000.
"""

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kvcompress.store import ArtefactStore, RunCollection

BLOCKS, RUN, ROUNDS = 1000, 32, 30


def hashes(kind: str, count: int) -> list[str]:
    """Hashes of blocks."""
    return [hashlib.sha256(f"{kind} {number}".encode()).hexdigest() for number in range(count)]


def save(runs: RunCollection, blocks: Sequence[str]) -> None:
    """Stores an artefact with nothing but a header."""
    header = json.dumps({"__metadata__": {"blocks": ",".join(blocks)}}).encode()
    with runs.staged() as path:
        Path(path).write_bytes(len(header).to_bytes(8, "little") + header)
        runs.add(path, blocks)


def report(what: str, run: Callable[[], object], rounds: int = ROUNDS) -> None:
    """Prints the least and the median time."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - began))
    print(f"| {what} | {min(times):.2f} | {statistics.median(times):.2f} |", flush=True)


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="on the file system that is measured")
    parser.add_argument("--artefacts", type=int, default=10_000, help="that are listed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        print("| | least, ms | median, ms |\n| --- | --- | --- |")
        there, absent = hashes("there", BLOCKS), hashes("absent", BLOCKS)
        files = [Path(place, "files", block[:3], block) for block in there]
        for path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        names = [str(path) for path in files]
        with ArtefactStore(Path(place, "store")) as store:
            runs = store.runs("tiny", {"model": "org/tiny"})
            for first in range(0, BLOCKS, RUN):
                save(runs, there[first : first + RUN])
            report("1,000 files by name", lambda: [Path(name).exists() for name in names])
            report("1,000 blocks that are there", lambda: [runs.holds(each) for each in there])
            report("1,000 blocks that are not", lambda: [runs.holds(each) for each in absent])
            numbers = iter(range(ROUNDS))
            report(
                "save of 32 blocks, without its bytes",
                lambda: save(runs, hashes(f"run {next(numbers)}", RUN)),
            )
            for number in range(given.artefacts):
                save(runs, hashes(f"one {number}", 1))
            report(f"listing of {given.artefacts:,} artefacts", lambda: list(store.entries()), 5)
            report(f"sweep of {given.artefacts:,} artefacts", store.sweep, 3)


if __name__ == "__main__":
    main()
