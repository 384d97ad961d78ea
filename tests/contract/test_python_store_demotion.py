# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Artefacts of a store that are encoded again, smaller, by the service and by the command."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import kvcompress
from kvcompress.store import ArtefactStore, Demoted, Demotion, RunCollection
from kvcompress.store._headers import metadata_of
from oracle.fixtures import SAMPLE

BLOCKS = [f"{number:064x}" for number in range(6)]
IDENTITY = {"model": "org/model", "dtype": "bfloat16"}
DAY = 86400.0
LAYOUT = "2ltd:head_dim=64"


def save(client: kvcompress.Client, runs: RunCollection, blocks: Sequence[str]) -> None:
    """Saves blocks as an engine does, without loss, and as if it were days ago."""
    with runs.staged() as path:
        client.compress(
            SAMPLE,
            path,
            codec="lossless",
            labels={**runs.identity, "blocks": "digest"},
        )
        own = metadata_of(path)
        arrays = client.decompress(path).tensors
        Path(path).unlink()
        client.compress(
            arrays or {},
            path,
            codec="lossless",
            labels={
                key.removeprefix("kvcompress.label."): own[key] for key in own if "label" in key
            },
            metadata={"blocks": ",".join(blocks), "first_token": "128"},
        )
        runs.add(path, blocks)
    then = time.time() - 3 * DAY + 60 * BLOCKS.index(blocks[0])
    os.utime(str(runs.artefact_of(blocks[0])), (then, then))


@pytest.fixture
def store(client: kvcompress.Client, tmp_path: Path) -> ArtefactStore:
    """Three artefacts of two blocks, the second one read a day after it was written."""
    store = ArtefactStore(tmp_path / "cache", {"capacity_bytes": "1G"})
    runs = store.runs("model", IDENTITY)
    for first in range(0, len(BLOCKS), 2):
        save(client, runs, BLOCKS[first : first + 2])
    found = Path(str(runs.artefact_of(BLOCKS[2]))).stat()
    os.utime(str(runs.artefact_of(BLOCKS[2])), (found.st_mtime + DAY, found.st_mtime))
    return store


def run(store: ArtefactStore, client: kvcompress.Client, codec: str, days: float = 2.5) -> Demoted:
    """Demotes what was not used for some days."""
    return store.demoter(client, Demotion(codec, days * DAY)).run()


def state(store: ArtefactStore) -> dict[str, tuple[float, float, bool]]:
    """By block the times of its artefact, and whether it was never read."""
    runs = store.runs("model", IDENTITY)
    found = {entry.path: entry for entry in store.entries()}
    paths = {block: str(runs.artefact_of(block)) for block in BLOCKS}
    entries = {block: found[path] for block, path in paths.items()}
    return {block: (e.used, e.written, e.never_read) for block, e in entries.items()}


def peek(path: str | Path) -> bytes:
    """Returns the bytes of an artefact, which counts as no use of it."""
    found = Path(path).stat()
    data = Path(path).read_bytes()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    return data


def held(store: ArtefactStore) -> int:
    """What the artefacts take, by a listing."""
    return sum(entry.bytes for entry in store.entries())


def test_down_the_ladder(client: kvcompress.Client, store: ArtefactStore) -> None:
    """What is old becomes smaller, with all that it had; what is not old, or done, stays."""
    runs = store.runs("model", IDENTITY)
    times, size, events = state(store), held(store), list[str]()
    store.subscribe(lambda event: events.append(f"{event.action} {event.reason}"))
    artefact = runs.artefact_of(BLOCKS[0])
    assert artefact is not None
    expected = client.decompress(peek(artefact)).tensors or {}

    done = run(store, client, "int8")
    assert (done.artefacts, done.kept, done.failed) == (2, 0, 0), done.errors
    assert done.bytes < done.before_bytes
    assert held(store) == size - done.before_bytes + done.bytes == store.stats().bytes
    assert state(store) == times
    assert events == ["removed replaced"] * 2
    smaller = runs.artefact_of(BLOCKS[1])
    assert smaller is not None
    assert smaller != artefact
    metadata = metadata_of(smaller)
    assert metadata["blocks"] == ",".join(BLOCKS[:2])
    assert metadata["first_token"] == "128"
    assert metadata["kvcompress.tensors"].startswith("int8")
    labels = {**IDENTITY, "blocks": "digest"}
    restored = client.decompress(peek(smaller), expected_labels=labels).tensors or {}
    assert restored.keys() == expected.keys()
    for name, array in expected.items():
        assert (restored[name].dtype, restored[name].shape) == (array.dtype, array.shape)
    assert run(store, client, "int8") == Demoted()

    again = run(store, client, "ecsq")
    assert again.artefacts == 2
    assert again.before_bytes == done.bytes > again.bytes
    assert run(store, client, "int8") == Demoted(), "not up again"
    assert run(store, client, "ecsq", 0.5).artefacts == 1, "the one that was read"
    assert run(store, client, "klt", 0) == Demoted(kept=3), "of 96 tokens it is no smaller"
    assert state(store) == times
    swept = store.sweep()
    assert (swept.removed, swept.pointers, swept.adopted) == ([], 0, 0)


def test_chunk(client: kvcompress.Client, tmp_path: Path) -> None:
    """Under its name, in its layout."""
    random = np.random.default_rng(0)
    cache = {"group_0": random.normal(size=(2, 3, 256, 128)).astype(np.float16)}
    options = {"codec": "lossless", "labels": {"lmcache.model": "org/model"}, "layout": LAYOUT}
    data = client.compress(cache, **options).artefact or b""  # type: ignore[call-overload]
    with ArtefactStore(tmp_path / "cache") as store:
        chunks, name = store.chunks(), f"00/{'0' * 40}.safetensors"
        chunks.write(name, data)
        done = run(store, client, "klt", 0)
        assert (done.artefacts, done.failed) == (1, 0), done.errors
        assert store.stats().bytes == held(store) == done.bytes < done.before_bytes / 2
        restored = client.decompress(
            chunks.read(name, len(data)), expected_labels={"lmcache.model": "org/model"}
        ).tensors
        assert restored is not None
        error = np.abs(restored["group_0"].astype(np.float64) - cache["group_0"]).mean()
        assert 0 < error < 0.5


def test_what_cannot_be_encoded_again(client: kvcompress.Client, store: ArtefactStore) -> None:
    """It stays as it is, is reported, and is not tried again; what changes meanwhile stays too."""
    runs = store.runs("model", IDENTITY)
    damaged, moved, whole = (Path(str(runs.artefact_of(BLOCKS[i]))) for i in (0, 2, 4))
    data, found = bytearray(peek(damaged)), damaged.stat()
    data[-1] ^= 1
    damaged.write_bytes(data)
    os.utime(damaged, ns=(found.st_atime_ns, found.st_mtime_ns))
    # Of two blocks of one artefact, one is in a later one.
    save(client, runs, BLOCKS[3:4])
    demoter = store.demoter(client, Demotion("ecsq", 0.5 * DAY))
    done = demoter.run()
    assert (done.artefacts, done.failed) == (2, 1)
    [error] = done.errors
    assert damaged.name in error
    assert damaged.read_bytes() == data
    assert moved.exists()
    assert not whole.exists()
    assert demoter.run() == Demoted()


def test_artefact_that_is_replaced_meanwhile(
    client: kvcompress.Client, store: ArtefactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or evicted: the smaller one is dropped. Somebody who reads it has it whole."""
    runs = store.runs("model", IDENTITY)
    artefact = Path(str(runs.artefact_of(BLOCKS[0])))
    whole = peek(artefact)
    with artefact.open("rb") as reader:
        assert run(store, client, "ecsq").artefacts == 2
        assert reader.read() == whole
    replace, evicted = store._folder.replace, list[int]()

    def late(*arguments: object) -> int:
        evicted.append(len(store.evict_to(0)))
        return replace(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store._folder, "replace", late)
    done = run(store, client, "ecsq", 0)
    assert (done.artefacts, done.kept) == (0, 1)
    assert evicted == [3]
    assert held(store) == store.stats().bytes == 0


@pytest.mark.parametrize(
    ("codec", "days", "message"),
    [
        ("lossless", 1, "cannot be demoted to 'lossless', but to"),
        ("auto", 1, "'auto'"),
        ("ecsq", -1, "has to be 0 or more"),
    ],
)
def test_mistakes(codec: str, days: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Demotion(codec, days)


def test_an_artefact_of_zeros_does_not_fill_the_disk(
    client: kvcompress.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ArtefactStore(tmp_path / "cache") as store:
        zeros = {"layer_0_key": np.zeros((1, 1, 4096, 64), np.float16)}
        with store.runs("model", IDENTITY).staged() as path:
            client.compress(zeros, path, codec="lossless", metadata={"blocks": BLOCKS[0]})
            store.runs("model", IDENTITY).add(path, BLOCKS[:1])
        monkeypatch.setattr("kvcompress.store._demotion._MOST_BYTES", 4096 * 64 * 2 - 1)
        done = run(store, client, "ecsq", 0)
        assert done.failed == 1
        assert "restores to 524288 bytes, and 524287 are allowed" in done.errors[0]


@pytest.mark.timeout(600)  # it runs when nobody else does
def test_command(store: ArtefactStore, bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a server of its own, on one processor, when nobody else wants it."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    base = [sys.executable, "-m", "kvcompress", "store", store.path, "demote", "--codec"]
    line = [*base, "ecsq", "--older-than", "60h"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["artefacts"], found["failed"], found["errors"]) == (2, 0, [])
    assert found["bytes"] < found["before_bytes"]
    for arguments, message in (
        (["auto", "--older-than", "1d"], "cannot be demoted"),
        (["klt", "--older-than", "1d", "--processors", "0"], "has to be positive"),
    ):
        done = subprocess.run([*base, *arguments], capture_output=True, text=True, timeout=500)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


@pytest.mark.timeout(600)
def test_command_that_goes_on(
    store: ArtefactStore, bin_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again, until it is asked to end."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    command = [sys.executable, "-m", "kvcompress", "store", store.path, "demote"]
    command += ["--codec", "ecsq", "--older-than", "12h", "--every", "1s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        policy = os.sched_getscheduler(process.pid)
        process.terminate()
        process.wait(500)
    assert [each["artefacts"] for each in lines] == [3, 0]
    assert policy == os.SCHED_IDLE
