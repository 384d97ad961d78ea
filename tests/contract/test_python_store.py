# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.store with artefacts of the service, and `python -m kvcompress store` on them."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from documents import claimed, claimed_blocks, claimed_line, run_line, substituted

import kvcompress
from kvcompress.store import ArtefactStore, RunCollection

HASHES = [f"{number:064x}" for number in range(8)]
BLOCK_TOKENS = 16


def tensors(blocks: Sequence[str]) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float16]]]:
    """Keys and values of some blocks, the same for the same hashes."""
    random = np.random.default_rng([int(block, 16) for block in blocks])
    shape = (1, 2, BLOCK_TOKENS * len(blocks), 16)
    return {
        f"layer_0_{part}": random.normal(size=shape).astype(np.float16) for part in ("key", "value")
    }


def save(client: kvcompress.Client, runs: RunCollection, blocks: Sequence[str]) -> None:
    """Compresses blocks into an artefact of a store, as the docstring of the package has it."""
    with runs.staged() as path:
        client.compress(
            tensors(blocks), path, codec="lossless", metadata={"blocks": ",".join(blocks)}
        )
        runs.add(path, blocks)


@pytest.fixture
def folder(client: kvcompress.Client, tmp_path: Path) -> Path:
    """A store with four artefacts of two blocks."""
    with ArtefactStore(tmp_path / "cache", {"capacity_bytes": "1G"}) as store:
        runs = store.runs("model", {"model": "org/model"})
        for first in range(0, len(HASHES), 2):
            save(client, runs, HASHES[first : first + 2])
    return tmp_path / "cache"


def run(*arguments: object, status: int = 0) -> list[dict[str, object]]:
    """Runs the command into a pipe; returns what it prints."""
    command = [sys.executable, "-m", "kvcompress", "store", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_is_read_is_what_was_compressed(client: kvcompress.Client, folder: Path) -> None:
    with ArtefactStore(folder) as store:
        runs = store.runs("model", {"model": "org/model"})
        for first in range(0, len(HASHES), 2):
            artefact = runs.artefact_of(HASHES[first + 1])
            assert artefact is not None
            restored = client.decompress(runs.read(artefact, 1 << 20)).tensors
            assert restored is not None
            for name, expected in tensors(HASHES[first : first + 2]).items():
                assert np.array_equal(restored[name], expected)


def test_verify(folder: Path) -> None:
    """Every byte: of a payload, of a header, and pointers that are missing."""
    assert run(folder, "verify") == [{"artefacts": 4, "wrong": 0, "removed": 0}]
    first, second, third, _ = sorted(folder.glob("*/artefacts/*/*"))
    for path, place in ((first, -1), (second, 200)):
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)
    pointers = [*folder.glob("*/blocks/*/*")]
    [lost, *_] = [path for path in pointers if path.read_text() == third.name]
    lost.unlink()
    *faults, last = run(folder, "verify", status=1)
    assert last == {"artefacts": 4, "wrong": 3, "removed": 0}
    assert {str(fault["path"]) for fault in faults} == {
        str(path.relative_to(folder)) for path in (first, second, third)
    }
    assert "1 of 2 blocks have no pointer: sweep makes them" in json.dumps(faults)
    run(folder, "sweep")
    assert run(folder, "verify", "--remove", status=1)[-1] == {
        "artefacts": 4,
        "wrong": 2,
        "removed": 2,
    }
    assert run(folder, "verify") == [{"artefacts": 2, "wrong": 0, "removed": 0}]
    assert [first.exists(), second.exists(), third.exists(), lost.exists()] == [
        False,
        False,
        True,
        True,
    ]
    assert len([*folder.glob("*/blocks/*/*")]) == 4


def test_tables_on_a_terminal(folder: Path) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "kvcompress", "store", str(folder), "stats"]
    with subprocess.Popen(command, stdout=child) as process:
        os.close(child)
        printed = b""
        try:
            while part := os.read(parent, 4096):
                printed += part
        except OSError:  # the terminal is closed with its last process
            pass
        assert process.wait(60) == 0
    os.close(parent)
    assert "in 4 artefacts" in printed.decode()
    assert "capacity    1.0 GB" in printed.decode()


def test_lines_of_the_guide(folder: Path, tmp_path: Path) -> None:
    """What the guide asks people to type, in its order."""
    lines = [line.replace("/var/lib/node_exporter", str(tmp_path)) for line in claimed("store")]
    assert {line.split()[5] for line in lines} >= {"stats", "ls", "verify", "sweep", "evict"}
    for line in lines:
        run_line(re.sub("/cache|FOLDER", str(folder), line))
    assert "kvcompress_store_bytes{" in (tmp_path / "kvcompress.prom").read_text()


def test_block_of_the_guide(client: kvcompress.Client, tmp_path: Path) -> None:
    """What it restores is what it compressed."""
    [block] = claimed_blocks("store")
    blocks = HASHES[:2]
    names = {
        "client": client,
        "tensors": tensors(blocks),
        "hashes": blocks,
        "most_bytes": 1 << 20,
    }
    exec(substituted(block, **{"/cache": str(tmp_path / "cache")}), names)
    restored = names["restored"]
    assert isinstance(restored, dict)
    assert restored.keys() == tensors(blocks).keys()


def test_simulation_and_benchmark(tmp_path: Path) -> None:
    """More capacity is never worse, and all that there ever was is enough for nothing to go."""
    line = claimed_line("store hits")
    few = substituted(line, **{"--users 50 --days 2": "--users 5 --days 2"})
    rows = [row.split(" | ") for row in run_line(few).splitlines() if "%" in row]
    hits = [float(row[3].rstrip("%")) for row in rows]
    assert len(hits) == 7
    assert hits == sorted(hits)
    assert rows[-1][-1] == "0% |"
    measured = run_line(f"{claimed_line('store lookup')} --artefacts 10 --folder {tmp_path}")
    assert len(measured.splitlines()) == 8
