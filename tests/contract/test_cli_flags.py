# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The flags of kv-compress: spellings, mistakes and their messages, help."""

import re
from pathlib import Path

import pytest
from kv_compress import MISTAKES, Run, refuse, succeed, words_of
from malformed import CASES

from oracle.fixtures import SAMPLE

SEED_FLAGS = ["input", "output", "group-size", "sparsity", "decompress", "metrics-only", "verbose"]
NEW_FLAGS = ["server", "codec", "preset", "min-snr-db", "progress", "info", "verify", "tensors"]
NEW_FLAGS += ["tokens", "order"]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=words_of)
def test_mistakes_on_the_command_line(
    run: Run, tmp_path: Path, arguments: list[object], words: str
) -> None:
    """Every mistake is named, and leaves nothing behind."""
    refuse(run(*arguments), words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("json_cut_short", "parse header: invalid JSON"),
        ("deep_nesting", "parse header: invalid JSON"),
        ("dtype_f4", "unsupported data type: F4"),
    ],
)
def test_messages_of_the_program_replaced(run: Run, tmp_path: Path, name: str, words: str) -> None:
    """Broken files are called what they were called before."""
    path = tmp_path / "in"
    path.write_bytes(next(case.data for case in CASES if case.name == name))
    refuse(run("-input", path, "-metrics-only"), words)


@pytest.mark.parametrize("flag", ["-help", "--help", "-h", "-version", "--version"])
def test_help_and_version(run: Run, flag: str) -> None:
    """They go to standard output and succeed."""
    done = run(flag)
    assert done.returncode == 0
    assert b"kv-compress" in done.stdout
    assert done.stderr == b""


def test_help_lists_every_flag(run: Run) -> None:
    """The flags of the contract are all there."""
    text = run("-help").stdout.decode()
    for flag in [*SEED_FLAGS, *NEW_FLAGS]:
        assert re.search(rf"-{flag}\b", text), flag


@pytest.mark.parametrize(
    "arguments",
    [
        ["--input", SAMPLE, "--output", "out", "--group-size", "32"],
        [f"-input={SAMPLE}", "-output=out", "-group-size=32"],
        [f"--input={SAMPLE}", "--output=out", "--group-size=32", "--decompress=false"],
        ["-group-size", "32", "-verbose", "-output", "out", "-input", SAMPLE],
        ["-group-size", "64", "-input", SAMPLE, "-output", "out", "-group-size", "32"],
        ["-input", SAMPLE, "-output", "out", "-group-size", "32", "-sparsity", "0.0"],
        ["-input", SAMPLE, "-output", "out", "-group-size", "32", "-codec", "int4"],
    ],
    ids=["two_dashes", "equals", "two_dashes_equals", "order", "last_wins", "sparsity_0", "codec"],
)
def test_spellings_of_the_same_command(run: Run, tmp_path: Path, arguments: list[object]) -> None:
    """Every spelling gives the same artefact."""
    succeed(run("-input", SAMPLE, "-output", "expected", "-group-size", "32"))
    succeed(run(*arguments))
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()
