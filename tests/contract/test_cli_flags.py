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
    ("arguments", "words"),
    [
        (["-ouput", "out"], r"not defined: -ouput; did you mean -output\?"),
        (["-group_size", "32"], r"did you mean -group-size\?"),
        (["-O", "out"], r"did you mean -o\?"),
        (["-codec", "losless"], r"unknown codec .*; did you mean lossless\?"),
        (["-codec", "AUTO"], r"did you mean auto\?"),
        (["-codec", "klt:ulrta"], r"klt has no preset .*; did you mean ultra\?"),
        (["-codec", "int4:gruop_size=32"], r"has no option .*; did you mean group_size\?"),
        (["-codec", "int4+zsdt"], r"unknown byte compressor .*; did you mean zstd\?"),
        (["-layout", "pagde"], r"layout \"pagde\": .*; did you mean paged\?"),
        (["-thresholds", "max_rms=1"], r"did you mean max_rmse\?"),
    ],
    ids=words_of,
)
def test_names_that_are_nearly_right(run: Run, arguments: list[object], words: str) -> None:
    """The message ends with the name that was meant."""
    refuse(run("-metrics-only", SAMPLE, *arguments), words)


@pytest.mark.parametrize("flags", [["-bogus"], ["-codec", "bogus"], ["-layout", "xyz"]])
def test_names_that_are_near_to_none(run: Run, flags: list[object]) -> None:
    """Nothing is guessed."""
    assert b"did you mean" not in run("-metrics-only", SAMPLE, *flags).stderr


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


def test_help_begins_with_what_people_do(run: Run) -> None:
    """Forms, then examples, then flags; without arguments the forms alone."""
    lines = run("-help").stdout.decode().splitlines()
    assert lines[2] == "Usage:"
    assert re.fullmatch(r"  kv-compress compress \[FLAGS\] FILE... +to NAME.kvc.*", lines[3])
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles[:4] == ["Usage:", "Examples:", "What to do:", "Files:"]
    forms = lines[2 : lines.index("", 2)]
    alone = run()
    refuse(alone, "-input is required")
    assert alone.stderr.decode().splitlines()[1:-1] == forms
    assert b"Usage:" not in run("-bogus").stderr


def test_help_says_the_default_codec(run: Run) -> None:
    """The one that is taken."""
    text = " ".join(run("-help").stdout.decode().split())
    [(default, first)] = re.findall(r"see below \(default (\w+) at effort fast; (\w+) with", text)
    assert succeed(run("-metrics-only", SAMPLE))["codec"].split(":")[0] == default
    assert succeed(run("-metrics-only", "-input", SAMPLE))["codec"].split(":")[0] == first


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
