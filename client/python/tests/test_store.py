# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.store in one process: what is found, bounded, evicted, counted and reported."""

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from kvcompress.store import (
    ArtefactStore,
    Event,
    ReadOnlyStoreError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from kvcompress.store._lock import FolderLock
from store_artefacts import artefact, hashes, held, load, runs_of, save, unfinished

PAGE = 4096


def store_of(folder: Path, **options: object) -> ArtefactStore:
    """A store of a folder in the folder of a test."""
    return ArtefactStore(folder / "store", options)


def test_blocks_are_found_with_their_artefact(tmp_path: Path) -> None:
    """By another process's store as well, and not under another identity."""
    blocks = hashes(*range(5))
    with store_of(tmp_path) as store:
        size = save(runs_of(store), blocks[:4])
        assert size == PAGE + 4 * PAGE, "a page, and one for each pointer"
    with store_of(tmp_path) as store:
        runs = runs_of(store)
        assert [runs.holds(block) for block in blocks] == [True] * 4 + [False]
        assert load(runs, blocks[2]) == artefact(blocks[:4])
        assert not runs_of(store, model="org/other").holds(blocks[0])
        stats = store.stats()
        assert (stats.hits, stats.misses, stats.read) == (4, 2, 1)
        assert (stats.bytes, stats.artefacts) == (5 * PAGE, 1)
    assert held(tmp_path / "store") == 5 * PAGE


def test_capacity_and_order(tmp_path: Path) -> None:
    """What was not used for longest goes first, down to the low watermark."""
    with store_of(tmp_path, capacity_bytes=10 * 2 * PAGE, low_watermark=0.7) as store:
        runs, blocks = runs_of(store), hashes(*range(11))
        for index, block in enumerate(blocks[:10]):
            save(runs, [block])
            age(runs.artefact_of(block), 1000 - index)
        assert load(runs, blocks[0]) is not None, "used, and noted in memory alone"
        assert held(tmp_path / "store") == 10 * 2 * PAGE
        save(runs, [blocks[10]])
        there = [runs.holds(block) for block in blocks]
        assert there == [True, False, False, False, *[True] * 7]
        stats = store.stats()
        assert stats.evictions == {"capacity": 3}
        assert (stats.evicted_bytes, stats.evicted_unread) == (3 * 2 * PAGE, 3)
        assert stats.bytes == held(tmp_path / "store") == 8 * 2 * PAGE


def age(path: str | None, seconds: float) -> None:
    """Makes an artefact so many seconds old."""
    assert path is not None
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_artefact_that_cannot_fit(tmp_path: Path) -> None:
    """Nothing is evicted for it, and nothing stays of it."""
    with store_of(tmp_path, capacity_bytes=10 * PAGE) as store:
        runs, blocks = runs_of(store), hashes(0, 1)
        save(runs, blocks[:1])
        with pytest.raises(
            StoreFullError, match="raise capacity_bytes, or make artefacts of fewer"
        ):
            save(runs, blocks[1:], 10 * PAGE)
        assert [runs.holds(block) for block in blocks] == [True, False]
        assert store.stats().failures == {"full": 1}
        assert not unfinished(tmp_path / "store")


def test_what_is_being_read_stays(tmp_path: Path) -> None:
    """Even where the new artefact has to be refused; the next one evicts it."""
    with store_of(tmp_path, capacity_bytes=4 * PAGE) as store:
        runs, blocks = runs_of(store), hashes(0, 1)
        save(runs, blocks[:1], 3 * PAGE)
        path = runs.artefact_of(blocks[0])
        store._folder.presence.pin([str(path)])
        with pytest.raises(StoreFullError, match="all that could go is being read"):
            save(runs, blocks[1:], 3 * PAGE)
        assert runs.holds(blocks[0])
        store._folder.presence.unpin([str(path)])
        save(runs, blocks[1:], 3 * PAGE)
        assert [runs.holds(block) for block in blocks] == [False, True]


def test_removal_while_it_is_open_is_a_whole_artefact(tmp_path: Path) -> None:
    with store_of(tmp_path) as store:
        runs, blocks = runs_of(store), hashes(0)
        save(runs, blocks, 10 * PAGE)
        path = str(runs.artefact_of(blocks[0]))
        with Path(path).open("rb") as file:
            runs.discard(path)
            assert file.read() == artefact(blocks, 10 * PAGE)
        assert load(runs, blocks[0]) is None


def test_time_to_live(tmp_path: Path) -> None:
    """Counted from when it was written, whoever has read it since; gone at the next save."""
    with store_of(tmp_path, ttl="1h") as store:
        runs, blocks = runs_of(store), hashes(0, 1, 2)
        for block in blocks[:2]:
            save(runs, [block])
        path = runs.artefact_of(blocks[0])
        age(path, 3601)
        assert [runs.holds(block) for block in blocks] == [False, True, False]
        assert load(runs, blocks[0]) is None
        store._folder._next_expiry = 0.0
        save(runs, blocks[2:])
        assert not Path(str(path)).exists()
        assert store.stats().evictions == {"expired": 1}


def test_blocks_that_are_saved_again_take_no_more_room(tmp_path: Path) -> None:
    with store_of(tmp_path) as store:
        runs, blocks = runs_of(store), hashes(0, 1, 2)
        for run in (blocks[:2], blocks[1:], blocks[1:], blocks[1:]):
            save(runs, run)
        assert len(list(store.entries())) == 2
        assert store.stats().artefacts == 2
        assert store.stats().evictions == {"replaced": 2}
        assert all(runs.holds(block) for block in blocks)


def test_events_tell_of_blocks(tmp_path: Path) -> None:
    """Of those that are gone, and not of those that are elsewhere."""
    with store_of(tmp_path) as store:
        runs, events, others = runs_of(store), list[Event](), list[Event]()
        runs.subscribe(events.append)
        runs_of(store, model="other").subscribe(others.append)
        a, b, c = hashes(0, 1, 2)
        save(runs, [a, b])
        save(runs, [b, c])
        store.evict_to(3 * PAGE)
        told = [(event.action, event.blocks, event.reason) for event in events]
        assert told == [
            ("stored", (a, b), ""),
            ("stored", (b, c), ""),
            ("removed", (a,), "asked"),
        ]
        assert events[0].collection == Path(runs.path).name
        assert (tmp_path / "store" / events[1].artefact).exists()
        assert not others


def test_folder_that_is_removed_is_made_again(tmp_path: Path) -> None:
    """With everything in it, or parts."""
    with store_of(tmp_path) as store:
        runs, folder = runs_of(store), tmp_path / "store"
        for part in (folder, Path(runs.path), Path(runs.path) / "artefacts", folder / ".store"):
            shutil.rmtree(part)
            save(runs, hashes(part))
            assert runs.holds(*hashes(part)), part
            assert (Path(runs.path) / "identity.json").exists()
        assert store.stats().bytes == held(folder)


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read; an empty one is a store with nothing in it."""
    blocks = hashes(0)
    with store_of(tmp_path) as store:
        save(runs_of(store), blocks)
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = sorted(tmp_path.rglob("*"))
    for folder, there in ((tmp_path, True), (tmp_path / "empty", False)):
        (folder / "store" / ".store" / "writers").mkdir(parents=True, exist_ok=True)
        with store_of(folder) as store:
            assert store.read_only
            runs = runs_of(store)
            assert runs.holds(blocks[0]) == there
            with pytest.raises(ReadOnlyStoreError, match="none are stored"):
                save(runs, hashes(1))
            if there:
                assert load(runs, blocks[0]) is not None
                runs.discard(str(runs.artefact_of(blocks[0])))
    assert {*before} <= {*tmp_path.rglob("*")}, "nothing is removed"


def test_smaller_capacity_holds_from_the_start(tmp_path: Path) -> None:
    with store_of(tmp_path) as store:
        for block in hashes(*range(10)):
            save(runs_of(store), [block])
    with store_of(tmp_path, capacity_bytes=10 * PAGE) as store:
        assert store.stats().bytes == held(tmp_path / "store") <= 9 * PAGE


def test_file_systems_without_locks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than a bound that does not hold; and those whose locks keep nobody out."""
    import fcntl

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", lambda *_: None)
        with pytest.raises(StoreError, match="keep nobody out: mount it with locks"):
            store_of(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr("kvcompress.store._checks.fcntl.flock", refuse)
        with pytest.raises(OSError, match="No locks available"):
            store_of(tmp_path)


def test_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vfat, SMB and some of FUSE are."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    for name in ("symlink", "link"):
        monkeypatch.setattr(os, name, refuse)
    with store_of(tmp_path) as store:
        save(runs_of(store), hashes(0, 1))
        assert runs_of(store).holds(hashes(1)[0])


def test_lock_that_somebody_keeps(tmp_path: Path) -> None:
    """The error says which file it is; look-ups and reads do not wait for it."""
    with store_of(tmp_path) as store:
        runs, blocks = runs_of(store), hashes(0, 1)
        save(runs, blocks[:1])
        control = tmp_path / "store" / ".store" / "lock"
        store._folder._lock = FolderLock(str(control), patience=0.05)
        with FolderLock(str(control)).held():
            with pytest.raises(StoreBusyError, match="has been locked by others for"):
                save(runs, blocks[1:])
            assert load(runs, blocks[0]) is not None
        save(runs, blocks[1:])


def test_full_disk(tmp_path: Path) -> None:
    """The save fails, and frees space for the next."""
    with store_of(tmp_path) as store:
        runs, blocks = runs_of(store), hashes(*range(20))
        for block in blocks:
            save(runs, [block])

        def save_on_full_disk() -> None:
            with runs.staged() as path:
                Path(path).touch()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with pytest.raises(OSError, match="No space"):
            save_on_full_disk()
        assert store.stats().evictions == {"disk full": 1}
        assert store.stats().failures == {"disk full": 1}
        assert not unfinished(tmp_path / "store")


def test_what_is_hidden_is_a_miss_for_a_while(tmp_path: Path) -> None:
    """For this process; an artefact that is stored again is seen at once."""
    with store_of(tmp_path) as store, store_of(tmp_path) as other:
        runs, blocks = runs_of(store), hashes(0)
        save(runs, blocks)
        runs.hide(str(runs.artefact_of(blocks[0])), 60)
        assert not runs.holds(blocks[0])
        assert runs_of(other).holds(blocks[0])
        save(runs, blocks)
        assert runs.holds(blocks[0])
        runs.hide(str(runs.artefact_of(blocks[0])), -1)
        assert runs.holds(blocks[0]), "that time is over"


def test_touched_blocks_are_evicted_later(tmp_path: Path) -> None:
    with store_of(tmp_path, capacity_bytes=3 * 2 * PAGE) as store:
        runs, blocks = runs_of(store), hashes(*range(4))
        for number, block in enumerate(blocks[:3]):
            save(runs, [block])
            age(runs.artefact_of(block), 1000 - number)
        runs.touch([blocks[0], hashes("none")[0]])
        save(runs, blocks[3:])
        assert [runs.holds(block) for block in blocks] == [True, False, True, True]


def test_folder_of_a_collection_on_another_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what is wrong, and nothing stays."""
    with store_of(tmp_path) as store:
        runs = runs_of(store)
        rename = os.replace

        def refuse(path: str, target: str) -> None:
            if target.endswith(".safetensors"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            rename(path, target)

        monkeypatch.setattr(os, "replace", refuse)
        with pytest.raises(StoreError, match="keep a store on one"):
            save(runs, hashes(0))
        assert (store.stats().bytes, store.stats().failures) == (0, {"other": 1})
        assert not unfinished(tmp_path / "store")


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    """Not counted and never evicted, whatever its name."""
    folder = tmp_path / "store"
    with store_of(tmp_path, capacity_bytes=4 * PAGE) as store:
        runs = runs_of(store)
        save(runs, hashes(0))
        mine = [folder / "notes.txt", folder / "aa" / "notes", Path(runs.path) / "artefacts" / "x"]
        mine += [Path(runs.path) / "blocks" / "src" / name for name in ("src", "source-1", "a.py")]
        for path in mine:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 100_000)
        for index in range(5):
            save(runs, hashes(index))
        store.sweep()
        assert all(path.exists() for path in mine)
        assert store.stats().bytes <= 4 * PAGE


def test_chunks_by_name(tmp_path: Path) -> None:
    """Written over, listed in order, removed, pinned; a FIFO or a link is written over too."""
    names = [f"{digest[:2]}/{digest[2:42]}.safetensors" for digest in sorted(hashes(*range(4)))]
    with store_of(tmp_path, capacity_bytes=4 * PAGE) as store:
        chunks = store.chunks()
        for name in names[:3]:
            chunks.write(name, artefact(hashes(name)))
        chunks.write(names[0], artefact(hashes("new")))
        assert chunks.read(names[0], PAGE) == artefact(hashes("new"))
        assert store.stats().bytes == held(tmp_path / "store") == 3 * PAGE
        assert [each.name for each in chunks.list()] == names[:3]
        assert [each.name for each in chunks.list(names[0])] == names[1:3]
        chunks.pin(names[:1])
        age(store.path + "/" + names[0], 100)
        chunks.write(names[3], artefact(hashes(0), 2 * PAGE))
        assert chunks.exists(names[0])
        assert [chunks.exists(name) for name in names[1:]] == [False, True, True]
        assert chunks.remove(names) == names[2:], "one is pinned, and one is gone"
        chunks.unpin(names[:1])
        assert chunks.remove(names) == names[:1]
        with pytest.raises(FileNotFoundError):
            chunks.read(names[0], PAGE)
        with pytest.raises(StoreError, match="no name of a chunk"):
            chunks.write("../x", b"")


def test_chunk_that_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"aa/{'0' * 40}.safetensors"
    with store_of(tmp_path) as store:
        chunks, rename = store.chunks(), os.replace
        chunks.write(name, artefact(hashes("old")))

        def refuse(path: str, target: str) -> None:
            if target.endswith(".safetensors"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rename(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refuse)
            with pytest.raises(OSError, match="Input/output error"):
                chunks.write(name, artefact(hashes("new")))
        assert chunks.read(name, PAGE) == artefact(hashes("old"))
        assert store.stats().bytes == held(tmp_path / "store") == PAGE


def test_access_times_are_written_at_the_end(tmp_path: Path) -> None:
    """When an artefact was written stays as it is."""
    with store_of(tmp_path) as store:
        runs = runs_of(store)
        save(runs, hashes(0))
        path = runs.artefact_of(hashes(0)[0])
        age(path, 1000)
        assert next(store.entries()).never_read
        load(runs, hashes(0)[0])
    with store_of(tmp_path) as store:
        entry = next(store.entries())
        assert time.time() - entry.used < 100 < 900 < time.time() - entry.written
        assert not store.prune(500)
        assert len(store.prune(0)) == 1
