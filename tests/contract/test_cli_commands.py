# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Commands of kv-compress: words that do what flags do, each with a help of its own."""

import json
import re
import shutil
from pathlib import Path

import pytest
from kv_compress import Run, bits, refuse, succeed

from oracle.fixtures import REPOSITORY, SAMPLE

COMMANDS = ["compress", "restore", "compare", "verify", "info", "measure", "train", "bench"]
FEWEST_FLAGS, MOST_FLAGS = 8, 40


def same(one: bytes, other: bytes) -> bool:
    """Whether two reports differ in nothing but times."""

    def timeless(text: bytes) -> str:
        return re.sub(r'"(processing_time_ms|\w+_mb_per_second)":[^,}]*', "", text.decode())

    return timeless(one) == timeless(other)


def test_there_and_back(run: Run, tmp_path: Path, artefact: Path) -> None:
    """Compress and restore write what the flags write."""
    succeed(run("compress", SAMPLE, "-codec", "int4", "-o", "made.kvc.safetensors"))
    assert (tmp_path / "made.kvc.safetensors").read_bytes() == artefact.read_bytes()
    succeed(run("restore", "made.kvc.safetensors"))
    succeed(run("restore", "-input", artefact, "-output", "named"))
    succeed(run("-decompress", artefact, "-output", "flagged"))
    flagged = bits(tmp_path / "flagged")
    assert bits(tmp_path / "made.restored.safetensors") == bits(tmp_path / "named") == flagged


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["verify", "artefact", "-threads", "1"], ["-verify", "artefact", "-threads", "1"]),
        (["verify", "-quiet", "artefact", "artefact"], ["-verify", "artefact", "artefact"]),
        (["info", "artefact"], ["-info", "artefact"]),
        (["info", "-input", "artefact"], ["-info", "artefact"]),
        (["measure", SAMPLE, "-codec", "int8"], ["-metrics-only", SAMPLE, "-codec", "int8"]),
        (["compare", "-codec", "int4", SAMPLE], ["-compare", SAMPLE, "-codec", "int4"]),
        (["compare", SAMPLE, SAMPLE, "-codec=int4"], ["-compare", SAMPLE, SAMPLE, "-codec=int4"]),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_do_what_flags_do(
    run: Run, artefact: Path, command: list[object], flags: list[object]
) -> None:
    """They print the same."""
    assert artefact.name == "artefact"
    done, flagged = run(*command), run(*flags)
    assert done.returncode == flagged.returncode == 0
    assert same(done.stdout, flagged.stdout)


def test_training(run: Run, tmp_path: Path) -> None:
    """The profile is the output."""
    cache = REPOSITORY / "tests" / "golden" / "profile" / "cache.safetensors"
    flags = ["-model-label", "m", "-profile-layers", "2", cache]
    answer = json.loads(run("train", "-o", "one", *flags).stdout)
    flagged = json.loads(run("-train-profile", "two", *flags).stdout)
    assert answer["profile"] == flagged["profile"]
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compress"], r"compress needs a file: kv-compress compress \[FLAGS\] FILE"),
        (["verify", "-quiet"], "verify needs a file"),
        (["compress", SAMPLE, "-d"], "the command compress says what is done: leave out -decompr"),
        (["compare", "-info", SAMPLE], "the command compare says what is done"),
        (["train", "-model-label", "m", SAMPLE], "train needs a file to write: -o PROFILE"),
        (["compare", SAMPLE, "-o", "out"], "writes nothing"),
        (["info", SAMPLE, "-codec", "int4"], "-codec needs"),
        (["comprss", SAMPLE], r'"comprss" is neither a command nor a file; did you mean compress'),
        (["Restore", SAMPLE], r"did you mean restore\?"),
        (["./comprss"], "no such file"),
    ],
)
def test_mistakes_with_commands(
    run: Run, tmp_path: Path, arguments: list[object], words: str
) -> None:
    """Each is named, and leaves nothing behind."""
    refuse(run(*arguments), words)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_called_like_a_command(run: Run, tmp_path: Path) -> None:
    """Or nearly so: a file that is there is a file, and ./NAME is one always."""
    for name in ("compress", "comprss"):
        shutil.copy(SAMPLE, tmp_path / name)
    succeed(run("./compress", "-o", "one"))
    succeed(run("comprss", "-o", "two"))
    succeed(run("compress", "compress", "-o", "three"))
    made = {(tmp_path / name).read_bytes() for name in ("one", "two", "three")}
    assert len(made) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_is_short(run: Run, command: str) -> None:
    """It has the flags that it takes, examples of its own, and nothing of other commands."""
    every = set(re.findall(r"(?m)^  (?:-\w,)?--([\w-]+)", run("-help").stdout.decode()))
    texts = {run(command, flag).stdout for flag in ("-help", "--help", "-h")}
    assert len(texts) == 1
    text = texts.pop().decode()
    assert text.startswith(f"Usage: kv-compress {command} [FLAGS] ")
    examples = re.findall(r"(?m)^  kv-compress (\w+) ", text)
    assert set(examples) == {command}
    flags = set(re.findall(r"(?m)^  (?:-\w,)?--([\w-]+)", text))
    assert flags < every
    assert FEWEST_FLAGS < len(flags) < MOST_FLAGS
    assert "Codecs:" not in text
    for flag in flags - {"help"}:
        done = run(command, "absent", f"-{flag}")
        assert f"-{flag} needs" not in done.stderr.decode(), flag


def test_all_commands_begin_the_help(run: Run) -> None:
    """With the flags that do the same."""
    lines = run("-help").stdout.decode().split("\n\n")[1].splitlines()
    assert [line.split()[1] for line in lines[1:]] == COMMANDS
