# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.store on a file system that is mounted read-only: an engine starts, and reads."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcompress.store import ArtefactStore, ReadOnlyStoreError, StoreError
from store_artefacts import hashes, load, runs_of, save


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which can be written."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def freeze(folder: Path) -> None:
    """Lets nothing be written any more."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def test_empty(disk: Path) -> None:
    """It is a store with nothing in it; what is not there cannot be made."""
    freeze(disk)
    with ArtefactStore(disk) as store:
        runs = runs_of(store)
        assert store.read_only
        assert not runs.holds(hashes(0)[0])
        with pytest.raises(ReadOnlyStoreError, match="none are stored"):
            save(runs, hashes(0))
        assert store.stats().failures == {"read-only": 1}
    with pytest.raises(StoreError, match=r"cannot be made \(Read-only"):
        ArtefactStore(disk / "cache")


def test_with_artefacts(disk: Path) -> None:
    """They are read; those that are damaged stay, and are not seen any more."""
    with ArtefactStore(disk) as store:
        for name in range(3):
            save(runs_of(store), hashes(name))
    freeze(disk)
    with ArtefactStore(disk, {"capacity_bytes": 4096}) as store:
        runs = runs_of(store)
        assert load(runs, hashes(0)[0]) is not None
        artefact = runs.artefact_of(hashes(1)[0])
        assert artefact is not None
        runs.discard(artefact)
        assert [runs.holds(each) for each in hashes(0, 1, 2)] == [True, False, True]
        assert Path(artefact).exists()
