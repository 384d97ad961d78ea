# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A process that is killed in the middle of a save, and what a sweep finds."""

import fcntl
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

from kvcompress.store import ArtefactStore
from store_artefacts import artefact, hashes, held, runs_of, save

PROGRAM = Path(__file__).with_name("store_crashes.py")


def test_killed_at_every_point_of_a_save(tmp_path: Path) -> None:
    """Nothing is left and nothing is lost; the artefact that was saved is there whole, or not."""
    modules = os.pathsep.join([str(PROGRAM.parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "store"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["points"] > 50


def old(path: Path) -> None:
    """Makes a file an hour old."""
    then = time.time() - 3600
    os.utime(path, (then, then), follow_symlinks=False)


def test_what_earlier_versions_and_others_leave_is_swept(tmp_path: Path) -> None:
    """Empty and damaged artefacts, unfinished files, pointers and links that lead nowhere."""
    folder, blocks = tmp_path / "store", hashes(*range(6))
    with ArtefactStore(folder) as store:
        runs = runs_of(store)
        for block in blocks:
            save(runs, [block])
        paths = [Path(str(runs.artefact_of(block))) for block in blocks]
        paths[0].write_bytes(b"")
        paths[1].write_bytes(artefact(blocks[1:2])[:20])
        for path in paths[:2]:
            old(path)
        paths[2].write_bytes(b"")  # a moment ago: somebody may be at it
        paths[3].unlink()
        pointer = Path(runs.path) / "blocks" / blocks[4][:3] / blocks[4]
        pointer.unlink()
        pointer.symlink_to("../../artefacts/00/gone.kvc.safetensors")
        partial = paths[5].with_name(".4194304-0123456789abcdef.kvcompress-partial")
        unnamed = pointer.with_name(f".{blocks[4]}-01234567")
        chunk = folder / "aa" / f"{'0' * 40}.safetensors"
        chunk.parent.mkdir()
        for path in (partial, unnamed, chunk):
            path.touch()
            old(path)
        swept = store.sweep()
        assert sorted(each.reason for each in swept.removed) == ["damaged"] * 3
        assert (swept.partials, swept.adopted, swept.pointers) == (2, 1, 3)
        assert [runs.holds(block) for block in blocks] == [False, False, True, False, True, True]
        assert not any(path.exists() for path in (*paths[:2], partial, unnamed, chunk))
        assert store.stats().bytes == held(folder)
        assert store.stats().artefacts == 3


def test_demotion_that_was_killed_is_finished_by_a_sweep(tmp_path: Path) -> None:
    """Of two artefacts of one run and one time the smaller one stays, with all pointers."""
    blocks = hashes(0, 1)
    with ArtefactStore(tmp_path) as store:
        runs = runs_of(store)
        save(runs, blocks, 10_000)
        large = Path(str(runs.artefact_of(blocks[0])))
        save(runs, blocks, 1000)
        small = Path(str(runs.artefact_of(blocks[0])))
        assert not large.exists()
        for order in ([large, small], [small, large]):
            for path, size in ((large, 10_000), (small, 1000)):
                path.unlink(missing_ok=True)
                path.write_bytes(artefact(blocks, size))
            for path in order:  # however the file system lists them
                os.utime(path, (2e9, 2e9))
            first = Path(runs.path) / "blocks" / blocks[0][:3] / blocks[0]
            first.write_text(large.name)
            swept = store.sweep()
            assert [each.reason for each in swept.removed] == ["replaced"]
            assert not large.exists()
            assert {runs.artefact_of(block) for block in blocks} == {str(small)}
        assert store.stats().bytes == held(tmp_path)


def test_artefact_of_blocks_that_are_elsewhere_is_swept(tmp_path: Path) -> None:
    blocks = hashes(0, 1)
    with ArtefactStore(tmp_path) as store:
        runs = runs_of(store)
        save(runs, blocks)
        first = Path(str(runs.artefact_of(blocks[0])))
        for block in blocks:
            save(runs, [block])
        assert first.exists()
        assert [each.reason for each in store.sweep().removed] == ["orphan"]
        assert not first.exists()
        assert all(runs.holds(block) for block in blocks)


def test_what_a_writer_has_not_finished_stays(tmp_path: Path) -> None:
    """While it lives, here; of another machine, whose locks may not be seen, for an hour."""
    writers = tmp_path / ".store" / "writers"
    with ArtefactStore(tmp_path) as store, runs_of(store).staged() as mine:
        Path(mine).write_bytes(b"half")
        foreign, dead = writers / "ffffffff-1-00000000", writers / Path(mine).parent.name[:8]
        dead = dead.with_name(f"{dead.name}-1-00000000")
        for place in (foreign, dead):
            place.mkdir()
            (place / "lock").touch()
            (place / "half.safetensors").touch()
        with ArtefactStore(tmp_path) as other:
            assert other.sweep().partials == 0, "the dead one's went at the start"
        assert [Path(mine).exists(), foreign.exists(), dead.exists()] == [True, True, False]
        os.utime(foreign / "lock", (1.6e9, 1.6e9))
        assert store.sweep().partials == 1
        assert [Path(mine).exists(), foreign.exists()] == [True, False]


def test_sweep_is_made_once_a_day_by_whoever_saves(tmp_path: Path) -> None:
    """After the first save the folder was looked at; a day later a save does it again."""
    with ArtefactStore(tmp_path) as store:
        runs, blocks = runs_of(store), hashes(0, 1, 2)
        save(runs, blocks[:1])
        path = Path(str(runs.artefact_of(blocks[0])))
        path.write_bytes(b"")
        old(path)
        save(runs, blocks[1:2])
        assert path.exists()
        ledger = tmp_path / ".store" / "ledger.json"
        account = json.loads(ledger.read_text())
        ledger.write_text(json.dumps({**account, "swept": time.time() - 90_000}))
        save(runs, blocks[2:])
        assert not path.exists()


def test_ledger_that_is_no_ledger(tmp_path: Path) -> None:
    """The folder is listed in its place."""
    with ArtefactStore(tmp_path) as store:
        runs = runs_of(store)
        ledger = tmp_path / ".store" / "ledger.json"
        for index, text in enumerate(("", "[]", '{"bytes": "1"}', "[" * 100_000, "\0")):
            ledger.write_text(text)
            save(runs, hashes(index))
            assert store.stats().artefacts == index + 1
        account = json.loads(ledger.read_text())
        for wrong in ({"bytes": -1}, {"evictions": [1]}, {"evictions": {"a": "b"}}):
            ledger.write_text(json.dumps({**account, **wrong}))
            assert store.stats().artefacts == 5
        ledger.unlink()
        os.mkfifo(ledger)
        save(runs, hashes(5))
        assert store.stats().bytes == held(tmp_path)


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    """Also where a process that was forked meanwhile goes on."""
    with ArtefactStore(tmp_path) as store:
        with store._folder._lock.held():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the child does nothing else
                child = os.fork()
            if child == 0:
                time.sleep(60)
        descriptor = os.open(tmp_path / ".store" / "lock", os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        os.kill(child, 9)
        os.waitpid(child, 0)
        save(runs_of(store), hashes(0))
