# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A folder that several processes write to and read: the bound holds, and no byte is wrong.

KVCOMPRESS_STORE_TIMES says how many times the capacity is written, 20 by default, and
KVCOMPRESS_STORE_WRITERS by how many processes, 4 by default. 8 and 4,000 take about ten minutes.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcompress.store import ArtefactStore
from store_artefacts import PAGE, held, runs_of, unfinished
from store_processes import MOST_BYTES, block_of

TIMES = int(os.environ.get("KVCOMPRESS_STORE_TIMES", "20"))
WRITERS = int(os.environ.get("KVCOMPRESS_STORE_WRITERS", "4"))
READERS = 2
CAPACITY = 64 * MOST_BYTES
MOST = CAPACITY + WRITERS * MOST_BYTES + 4 * PAGE  # ledger, its successor, identity, lock
PROGRAM = Path(__file__).with_name("store_processes.py")


def start(action: str, folder: Path, number: int) -> "subprocess.Popen[str]":
    """Starts a process."""
    modules = os.pathsep.join([str(PROGRAM.parent), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, PROGRAM, action, folder, str(CAPACITY), str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def result(process: "subprocess.Popen[str]") -> dict[str, int]:
    """What a process prints at its end."""
    output, _ = process.communicate()
    assert process.returncode == 0
    found: dict[str, int] = json.loads(output)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder, on a file system of its own if that may be mounted, with space for the bound."""
    folder = tmp_path / "store"
    folder.mkdir()
    mount: list[str | Path] = ["mount", "-t", "tmpfs", "-o", f"size={MOST}", "tmpfs", folder]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    yield folder
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def measure(store: ArtefactStore, folder: Path) -> int:
    """What is published and what is not finished, at one moment."""
    if folder.is_mount():  # where the system knows, and refuses a byte more
        found = os.statvfs(folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    with store._folder._lock.held():
        return held(folder) + sum(path.stat().st_size for path in unfinished(folder))


@pytest.mark.timeout(0 if TIMES > 20 else 60)
def test_writers_and_readers_at_once(folder: Path) -> None:
    """The folder is measured all along: what is published, and what is not finished."""
    writers = [start("write", folder, number) for number in range(WRITERS)]
    readers = [start("read", folder, number) for number in range(READERS)]
    for process in (*writers, *readers):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        assert process.stdin is not None
        print(CAPACITY * TIMES // WRITERS, file=process.stdin, flush=True)
    measured = []
    with ArtefactStore(folder, {"capacity_bytes": CAPACITY}) as store:
        while any(process.poll() is None for process in writers):
            measured.append(measure(store, folder))
            assert len(unfinished(folder)) <= 2 * WRITERS, "an artefact and a pointer each"
            time.sleep(0.02)
    written = [result(process) for process in writers]
    read = [result(process) for process in readers]
    print(max(measured), CAPACITY, len(measured), written, read)
    assert sum(each["written"] for each in written) >= TIMES * CAPACITY
    assert CAPACITY // 2 <= max(measured) <= MOST
    assert all(each["wrong"] == 0 for each in read)
    assert all(each["hits"] and each["misses"] for each in read)

    with ArtefactStore(folder, {"capacity_bytes": CAPACITY}) as store:
        store.sweep()
        # A block that is in several artefacts has one pointer, and counts in each.
        assert held(folder) <= store.stats().bytes <= CAPACITY
        assert store.stats().artefacts == len(list(store.entries()))
        assert not runs_of(store).holds(block_of(0, 0)), "evicted long ago"
        assert not unfinished(folder)
    assert not [*(folder / ".store" / "writers").iterdir()]
