# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m kvcompress store`, but for `verify`, which tests/contract has with real artefacts."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvcompress.store import ArtefactStore
from kvcompress.store._command import main
from kvcompress.store._quantities import format_bytes, format_seconds, parse_bytes, parse_seconds
from store_artefacts import PAGE, hashes, runs_of, save

CAPACITY = 100 * PAGE
MANUAL = Path(__file__).parents[1] / "man" / "kvcompress-store.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with five artefacts of two pages and a pointer, the last one the newest."""
    with ArtefactStore(tmp_path / "store", {"capacity_bytes": CAPACITY}) as store:
        runs = runs_of(store)
        for number in range(5):
            save(runs, hashes(number), 2 * PAGE)
            then = time.time() - 86400 * (5 - number)
            os.utime(str(runs.artefact_of(hashes(number)[0])), (then, then))
    return tmp_path / "store"


def run(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> list[Any]:
    """What is printed into a pipe."""
    assert main([str(each) for each in arguments]) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def state_of(folder: Path) -> dict[Path, tuple[object, ...]]:
    """What a command that only reads leaves as it was: all but when folders were last listed.

    Times of access of artefacts count: they say when an artefact was last used.
    """
    return {
        path: (*found[:7], found.st_mtime_ns, found.st_ctime_ns)
        + (() if path.is_dir() or path.suffix == ".json" else (found.st_atime_ns,))
        for path in folder.rglob("*")
        for found in [path.lstat()]
    }


def test_stats(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing in the folder changes, and the capacity is that of the store that was there."""
    before = state_of(folder)
    [found] = run(capsys, folder, "stats")
    assert (found["bytes"], found["artefacts"]) == (15 * PAGE, 5)
    assert (found["capacity_bytes"], found["evictions"]) == (CAPACITY, {})
    [collection] = found["collections"]
    assert collection["identity"]["model"] == "org/tiny"
    assert (collection["artefacts"], collection["never_read"]) == (5, 5)
    assert 86000 < collection["last_used"] - collection["first_used"] - 3 * 86400 < 87000
    assert state_of(folder) == before
    assert main([str(folder), "stats", "--no-json"]) == 0
    table = capsys.readouterr().out
    assert "held        61.4 kB (15 %) in 5 artefacts" in table
    assert "capacity    409.6 kB" in table


def test_prometheus(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics of the ledger, on standard output or in a file that appears whole."""
    run(capsys, folder, "evict", "--to", 9 * PAGE)
    assert main([str(folder), "stats", "--prometheus", "-"]) == 0
    text = capsys.readouterr().out
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    label = f'{{folder="{folder}"}}'
    assert lines[f"kvcompress_store_bytes{label}"] == str(9 * PAGE)
    assert lines[f"kvcompress_store_capacity_bytes{label}"] == str(CAPACITY)
    assert lines[f"kvcompress_store_artefacts{label}"] == "3"
    evictions = f'kvcompress_store_evictions_total{{folder="{folder}",reason='
    assert lines[f'{evictions}"asked"}}'] == "2"
    assert lines[f'{evictions}"capacity"}}'] == "0"
    names = {line.partition("{")[0] for line in lines}
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == names

    file = tmp_path / "collector" / "kvcompress.prom"
    assert main([str(folder), "stats", "--prometheus", str(file)]) == 2
    assert "collector" in capsys.readouterr().err
    file.parent.mkdir()
    for _ in range(2):
        assert main([str(folder), "stats", "--prometheus", str(file)]) == 0
        assert (file.read_text(), file.stat().st_mode & 0o777) == (text, 0o644)
    assert [*file.parent.iterdir()] == [file]
    assert capsys.readouterr().out == ""


def test_ls(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that will be evicted first come first."""
    rows = run(capsys, folder, "ls")
    assert len(rows) == 5
    assert [row["used"] for row in rows] == sorted(row["used"] for row in rows)
    assert all((folder / row["path"]).exists() and row["never_read"] for row in rows)
    assert main([str(folder), "--no-json", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["artefact", "held", "written", "read"]
    assert lines[1].split()[1:] == ["12.3", "kB", "5", "d", "never"]


def test_evict_and_prune(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To a size, and by age; the newest stay."""
    assert run(capsys, folder, "prune", "--older-than", "108h") == [
        {"artefacts": 1, "bytes": 3 * PAGE}
    ]
    assert run(capsys, folder, "evict", "--to", str(7 * PAGE)) == [
        {"artefacts": 2, "bytes": 6 * PAGE}
    ]
    [found] = run(capsys, folder, "stats")
    assert (found["artefacts"], found["evictions"]) == (2, {"expired": 1, "asked": 2})
    assert found["evicted_unread"] == 0, "nobody's capacity was too small"
    with ArtefactStore(folder) as store:
        assert [runs_of(store).holds(hashes(each)[0]) for each in range(5)] == [False] * 3 + [
            True
        ] * 2


def test_sweep(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = folder / ".store" / "writers" / "00000000-1-00000000"
    left.mkdir()
    (left / "half.safetensors").touch()
    (left / "lock").touch()
    os.utime(left / "lock", (1, 1))
    [pointer, *_] = folder.glob("*/blocks/*/*")
    pointer.unlink()
    [swept] = run(capsys, folder, "sweep")
    assert (swept["unfinished"], swept["pointers_made"], swept["artefacts"]) == (1, 1, 0)
    assert pointer.exists()
    assert not left.exists()


def test_manual_page(capsys: pytest.CaptureFixture[str]) -> None:
    """The page of the package is what --man prints; each option is there, and troff takes it."""
    with pytest.raises(SystemExit) as ended:
        main(["--man"])
    assert ended.value.code == 0
    page = capsys.readouterr().out
    assert MANUAL.read_text() == page, "python -m kvcompress store --man > man/kvcompress-store.1"
    text = page.replace("\\-", "-")
    for word in ("stats", "ls", "verify", "sweep", "evict", "prune"):
        assert f"\n.SS {word}\n" in page
    for word in ("--json", "--prometheus", "--remove", "--to", "--older-than"):
        assert word in text
    groff = shutil.which("groff")
    if groff is not None:
        done = subprocess.run([groff, "-man", "-ww", "-z", MANUAL], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, and nothing is made."""
    assert main([str(tmp_path / "none"), "stats"]) == 2
    assert "is no folder: name one with artefacts" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    assert main([str(tmp_path), "sweep"]) == 2
    assert "has no artefacts: name the folder" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
    for arguments in (["evict"], ["evict", "--to", "much"], ["prune", "--older-than", "x"], []):
        with pytest.raises(SystemExit, match="2"):
            main([str(tmp_path), *arguments])


def test_reader_that_has_seen_enough(folder: Path) -> None:
    """No traceback, as with head."""
    module: list[str | Path] = [sys.executable, "-m", "kvcompress", "store", folder, "ls"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        module, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_quantities() -> None:
    assert [parse_bytes(each) for each in ("1", "1.5K", "100G", "64Gi", "2 MiB")] == [
        1,
        1500,
        100 * 10**9,
        64 << 30,
        2 << 20,
    ]
    assert [parse_seconds(each) for each in ("90", "2m", "12h", "7d", 3)] == [
        90,
        120,
        43200,
        604800,
        3,
    ]
    for text in ("", "G", "-1", "1X", "1e3"):
        with pytest.raises(ValueError, match="such as"):
            parse_bytes(text)
    assert [format_bytes(each) for each in (5, 1500, 2e9, 3e15)] == [
        "5 B",
        "1.5 kB",
        "2.0 GB",
        "3.0 PB",
    ]
    assert [format_seconds(each) for each in (-1, 100, 1000, 90000, 1e6, 2e6)] == [
        "0 s",
        "100 s",
        "17 m",
        "25 h",
        "12 d",
        "3 w",
    ]
