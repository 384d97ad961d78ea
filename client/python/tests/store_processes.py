# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Processes that write to one folder and read it until they are asked to stop.

    python store_processes.py write|read FOLDER CAPACITY NUMBER

A writer stores artefacts of one to four pages and one to three blocks, its own and some of the
others', and stops when it has written as many bytes as standard input says. A reader reads until
standard input ends. Both print what they did as JSON.
"""

import json
import os
import random
import sys
from pathlib import Path

from kvcompress.store import ArtefactStore
from store_artefacts import PAGE, hashes, is_whole, load, runs_of, save

MOST_BYTES = 4 * PAGE + 3 * PAGE  # of an artefact, with its pointers
_BLOCKS = 3
_WRITERS = 16  # that there may be


def block_of(writer: int, number: int) -> str:
    """The hash of a writer's block."""
    return hashes(f"{writer} {number}")[0]


def write(store: ArtefactStore, number: int, most: int) -> dict[str, int]:
    """Stores until so many bytes are written."""
    runs, choose = runs_of(store), random.Random(number)  # noqa: S311
    written = artefacts = 0
    while written < most:
        owner = number if choose.random() < 0.9 else choose.randrange(_WRITERS)
        first = artefacts * _BLOCKS
        blocks = [block_of(owner, first + i) for i in range(choose.randint(1, _BLOCKS))]
        written += save(runs, blocks, choose.randint(1, 4) * PAGE)
        artefacts += 1
        if choose.random() < 0.1:  # as after damage, next to the lock
            path = runs.artefact_of(block_of(number, choose.randrange(first + 1)))
            if path is not None:
                runs.discard(path)
    return {"written": written, "artefacts": artefacts}


def read(store: ArtefactStore, number: int) -> dict[str, int]:
    """Reads what is there until standard input ends."""
    runs, choose = runs_of(store), random.Random(number)  # noqa: S311
    hits = misses = wrong = 0
    os.set_blocking(0, False)
    while sys.stdin.buffer.read() is None:  # nothing yet; empty at the end
        there = [path.name for path in Path(runs.path).glob("blocks/*/*")]
        gone = [block_of(choose.randrange(_WRITERS), choose.randrange(1000)) for _ in range(20)]
        for block in (*choose.sample(there, min(100, len(there))), *gone):
            data = load(runs, block)
            hits, misses = hits + (data is not None), misses + (data is None)
            if data is not None and not (is_whole(data) and block.encode() in data):
                wrong += 1
    return {"hits": hits, "misses": misses, "wrong": wrong}


def main() -> None:
    """Runs one of them."""
    action, folder, capacity, number = sys.argv[1:]
    with ArtefactStore(Path(folder), {"capacity_bytes": int(capacity)}) as store:
        print("ready", flush=True)
        if action == "write":
            done = write(store, int(number), int(sys.stdin.readline()))
        else:
            done = read(store, int(number))
        print(json.dumps(done))


if __name__ == "__main__":
    main()
