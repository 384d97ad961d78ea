# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Kills a process with SIGKILL at every point of a save where it changes a folder, one by one.

    python store_crashes.py FOLDER

A point is an event that Python audits, such as the opening, renaming or removal of a file. After
each, a new store sweeps. Prints JSON: how many points there were, and what was wrong at them.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from kvcompress.store import ArtefactStore
from store_artefacts import PAGE, held, is_whole, load, runs_of, save, unfinished
from store_artefacts import hashes as hashes_of

CAPACITY = 12 * PAGE
POINTS = {"open", "os.rename", "os.remove", "os.utime", "os.mkdir", "fcntl.flock", "shutil.rmtree"}
KEPT, REPLACED, EVICTED, NEW = (hashes_of(f"{name}0", f"{name}1") for name in "abcd")


def prepare(folder: Path) -> None:
    """A folder in which the next save evicts one artefact, replaces another and keeps a third."""
    shutil.rmtree(folder, ignore_errors=True)
    with ArtefactStore(folder, {"capacity_bytes": CAPACITY}) as store:
        for age, blocks in enumerate((KEPT, REPLACED, EVICTED)):
            save(runs_of(store), blocks, PAGE)
            path = runs_of(store).artefact_of(blocks[0])
            os.utime(str(path), (1.6e9 - age, 1.6e9 - age))


def save_until(folder: Path, point: int) -> None:
    """Saves, and dies at a point."""
    left = [point]

    def strike(event: str, _: object) -> None:
        if event in POINTS and os.getpid() == own:
            left[0] -= 1
            if left[0] == 0:
                os.kill(own, signal.SIGKILL)

    own = os.getpid()
    store = ArtefactStore(folder, {"capacity_bytes": CAPACITY})
    runs = runs_of(store)
    sys.addaudithook(strike)
    save(runs, REPLACED, PAGE)
    save(runs, NEW, 2 * PAGE)
    store.close()


def faults(folder: Path) -> list[str]:
    """What is wrong after a sweep."""
    found = []
    with ArtefactStore(folder, {"capacity_bytes": CAPACITY}) as store:
        store.sweep()
        runs = runs_of(store)
        for blocks in (KEPT, REPLACED):
            data = [load(runs, block) for block in blocks]
            if any(each is None or not is_whole(each) for each in data):
                found.append(f"lost: {blocks}")
        there = [load(runs, block) for block in NEW]
        if (there[0] is None) != (there[1] is None):
            found.append("half of the new artefact")
        if unfinished(folder):
            found.append(f"left: {unfinished(folder)}")
        if store.stats().bytes != held(folder):
            found.append(f"counted {store.stats().bytes}, held {held(folder)}")
        if held(folder) > CAPACITY:
            found.append(f"held {held(folder)}")
        pointers = [*Path(runs.path).glob("blocks/*/*")]
        for pointer in pointers:
            if not runs.holds(pointer.name):
                found.append(f"leads nowhere: {pointer.name}")
        if len(pointers) != 2 * len([*store.entries()]):
            found.append("artefacts without pointers")
    writers = [*(folder / ".store" / "writers").iterdir()]
    return found + ([f"writers: {writers}"] if writers else [])


def main() -> None:
    """Tries every point."""
    folder, point, wrong = Path(sys.argv[1]), 0, {}
    while True:
        point += 1
        prepare(folder)
        child = os.fork()
        if child == 0:
            save_until(folder, point)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = faults(folder)
        if found:
            wrong[point] = found
        if status == 0:
            break
        if not os.WIFSIGNALED(status):
            wrong[point] = [f"status {status}"]
    print(json.dumps({"points": point - 1, "wrong": wrong}))


if __name__ == "__main__":
    main()
