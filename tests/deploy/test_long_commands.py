# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The commands of documents that measure for minutes or make a machine, made short.

What is put instead of words, or behind a line, stands here. Reports go to a folder of the
test's: nothing is written to the repository. How fast something is, is not a test's business.
"""

import re
from pathlib import Path

import pytest
from documents import REPOSITORY, claimed, claimed_line, run_line, substituted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SECONDS = 1700


def report(line: str, folder: Path) -> str:
    """Runs a line that saves a report; returns that, which is what it printed."""
    printed = run_line(f"{line} --output {folder}", seconds=SECONDS)
    if "--save" not in line:
        assert not folder.exists()
        return printed
    [path] = folder.iterdir()
    saved = path.read_text()
    assert saved.removesuffix("\n").endswith(printed.strip())
    return saved


def test_benchmark(tmp_path: Path) -> None:
    """It has a row for every peer."""
    [line] = claimed("benchmark")
    saved = report(f"{line} --mib 1 --rounds 1", tmp_path / "results")
    for row in ("memcpy", "read", "ggml q4_0 encode", "NumPy int4 encode", "int4 F32 encode"):
        assert re.search(rf"^\| {row} \| [0-9.]+ \|", saved, re.MULTILINE), saved


def test_transport(tmp_path: Path) -> None:
    """With and without --save the same is measured: here once."""
    line = next(line for line in claimed("transport") if "--save" in line)
    saved = report(f"{line} --rounds 1 --large-gb 1", tmp_path / "results")
    assert "Going once over the file" in saved


def test_clients() -> None:
    """It has a row for each kind of stream."""
    printed = run_line(f"{claimed_line('clients')} --rounds 1 --counts 1 2", seconds=SECONDS)
    for streams in ("echo", "int4", "ecsq"):
        for count in (1, 2):
            assert re.search(rf"^\| {streams} \| {count} \| [0-9.]+ \|", printed, re.MULTILINE)


def test_threads() -> None:
    """It has a row for every question, of calls that are small here."""
    line = claimed_line("threads")
    small = "--rounds 1 --large-gb 0.05 --tokens 512 --small-calls 20"
    printed = run_line(f"{line} {small}", seconds=SECONDS)
    for row in ("klt:contract | 64 ", "auto, 8 tensors ", "8 tensors | ", "klt:contract, 0.1 GB "):
        assert f"| {row}" in printed, printed


def test_link_benchmark() -> None:
    """It has a row for every codec at every speed."""
    line = claimed_line("link benchmark")
    small = "--rounds 1 --layers 1 --tokens 512 --gigabits 0.5 1"
    printed = run_line(f"{line} {small}", seconds=SECONDS)
    for codec in ("raw", "lossless", "int4", "ecsq:contract", "klt:contract"):
        for speed in ("0.5", "1"):
            row = rf"^\| {codec} \| [0-9.]+x \| [0-9.]+ \| {speed} \| "
            assert re.search(row, printed, re.MULTILINE), printed


def test_profiles() -> None:
    """It has a row for every preset of a profile that it trains."""
    printed = run_line(f"{claimed_line('profiles')} --rounds 1", seconds=SECONDS)
    presets = [f"klt:{preset}, profile" for preset in ("high", "max", "ultra")]
    for row in ("ecsq:contract", *presets):
        assert re.search(rf"^\| {row} \| [a-z0-9-]+ \| [0-9.]+ \|", printed, re.MULTILINE), printed


def test_overload(tmp_path: Path) -> None:
    """Some calls are served, and some refused."""
    line = claimed_line("overload")
    saved = report(f"{line} --seconds 2 --rounds 1 --times 3", tmp_path / "results")
    counts = re.search(r"\| calls refused \| [\d,]+ \| ([\d,]+) \|", saved)
    assert counts, saved
    assert counts[1] != "0"


def test_soak(tmp_path: Path) -> None:
    """No result is wrong."""
    line = substituted(claimed_line("soak"), **{"--seconds 3600": "--seconds 1"})
    saved = report(f"{line} --largest 1048576", tmp_path / "results")
    assert "| silent corruptions | 0 |" in saved


def test_tidy() -> None:
    """Over the few sources of one folder, which include nothing of gRPC."""
    line = substituted(claimed_line("tidy"), **{"server client": "core/digest"})
    assert run_line(line, seconds=SECONDS) == "\n"


def test_fresh_machine() -> None:
    """It makes one, and fails where a command fails there."""
    line = claimed_line("fresh machine")
    run_line(f"{line} 'test -x deploy/quickstart'", seconds=SECONDS)
    run_line(f"! {line} 'test -x deploy/nothing'", seconds=SECONDS)


def test_thread_sanitizer(bin_dir: Path) -> None:
    """As tests/run --all does both, word for word; here on other binaries, over fewer tests."""
    script = (REPOSITORY / "tests" / "run").read_text()
    build, test = claimed("thread sanitizer")
    assert f"if ! {build}; then" in script
    binaries, options, *_ = test.split()
    assert f"export {options}\n" in script
    assert f"export {binaries.replace('build/', '$repo/build/')}\n" in script
    line = substituted(
        test, **{"build/tsan/bin": str(bin_dir), "tests/load": "tests/load/test_deadlines.py"}
    )
    assert " 0 failed" in run_line(line, seconds=SECONDS).splitlines()[-1]
