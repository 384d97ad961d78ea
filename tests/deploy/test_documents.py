# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What documents tell people to type is there, and a test types it.

Every program, script, option and file that they name is looked up here. How each line and each
block is run stands in documents.py, by name; the test that asks for that name runs it.
"""

import functools
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from documents import (
    BLOCKS,
    DOCUMENTS,
    NOT_RUN,
    WAYS,
    WITHOUT_COMMANDS,
    blocks_of,
    claimed_blocks,
    commands,
    script,
    spans,
    text_of,
)
from test_repository import REPOSITORY, tracked

# Of programs that are not of this repository.
FOREIGN_OPTIONS = {"--read-only", "--cap-drop", "-O1", "-O2", "-g1", "-g", "-ffast-math"}
FOREIGN_OPTIONS |= {"--kv-transfer-config", "-format-error", "--enable-metrics", "--slot-save-path"}
FOREIGN_OPTIONS |= {"--cache-type-v", "--shutdown-timeout", "--lora-paths", "--shm-size"}
FOREIGN_OPTIONS |= {"-tcp_read_chunks"}
STORE = "client/python/src/kvcompress/store/_command.py"
LLAMA = "client/python/src/kvcompress/integrations/llama_cpp.py"
OPTION = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]*)")


def test_every_document_is_read() -> None:
    """But for those that have no commands by what they are."""
    names = {str(path.relative_to(REPOSITORY)) for path in tracked() if path.suffix == ".md"}
    assert {name for name in names if not WITHOUT_COMMANDS.fullmatch(name)} == set(DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_is_run_in_one_way(document: str) -> None:
    """Or stands, with the reason, among those that are not; so does every block."""
    for line in commands(document):
        found = [pattern for pattern in [*WAYS.values(), *NOT_RUN] if re.fullmatch(pattern, line)]
        assert len(found) == 1, f"{line}: {found}"
    for block in blocks_of(document):
        found = [way for way, pattern in BLOCKS.items() if re.search(pattern, block)]
        assert len(found) == 1, f"{block}: {found}"


def test_every_way_is_taken() -> None:
    """By a document, and by one file of tests, which asks for it by name."""
    lines = {line for document in DOCUMENTS for line in commands(document)}
    for pattern in [*WAYS.values(), *NOT_RUN]:
        assert any(re.fullmatch(pattern, line) for line in lines), pattern
    tests = [path.read_text() for path in (REPOSITORY / "tests").rglob("*.py")]
    for ways, call in ((WAYS, r"claimed(?:_line)?"), (BLOCKS, "claimed_blocks")):
        asked = Counter(
            way for text in tests for way in set(re.findall(rf"\b{call}\(\s*[\"']([^\"']+)", text))
        )
        assert asked == Counter(ways.keys())


def test_nearest_tests_are_there() -> None:
    """Those that stand for lines that are not run."""
    for reason in NOT_RUN.values():
        file, _, name = reason.nearest.partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text() or not name, reason


@functools.cache
def names_of_files() -> list[str]:
    """All that are tracked, with a slash in front."""
    return [f"/{path.relative_to(REPOSITORY)}" for path in tracked()]


@functools.cache
def helps(bin_dir: Path) -> dict[str, str]:
    """What --help of the programs says."""
    found = {}
    for name in ("kv-compress", "kv-compressd"):
        command = [str(bin_dir / name), "--help"]
        found[name] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return found


def options_in(text: str) -> set[str]:
    """Options, by their names alone: kv-compress takes one dash or two."""
    return {option.lstrip("-") for option in OPTION.findall(text)}


def program_of(command: str) -> tuple[str, str]:
    """The program of a command, after its variables, and its arguments."""
    words = command.split()
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    if words[0] == "$python":
        words.pop(0)
    words[0] = words[0].removeprefix("python=$(")
    if words[:2] == ["python", "-m"]:
        words[:3] = [f"python -m {words[2]}"]
    if words[:2] == ["python -m kvcompress", "store"]:
        words[:2] = [STORE]
    return words[0], " ".join(words[1:])


def known_options(program: str, document: str, bin_dir: Path) -> set[str] | None:
    """Those that a program of the repository takes; of another, None."""
    name = program.removeprefix("bin/")
    if name in helps(bin_dir):
        return options_in(helps(bin_dir)[name])
    if program == "python -m kvcompress":
        return options_in(helps(bin_dir)["kv-compress"])
    if program == "python -m kvcompress.batch":
        program = "client/python/src/kvcompress/batch.py"
    elif "/" not in program:
        return None
    # Its help may need what is not installed; it is written from this text.
    return options_in((script(program, document) or REPOSITORY / program).read_text())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_programs_and_their_options_are_there(bin_dir: Path, document: str) -> None:
    """Of each command; what follows a lone -- is for another program."""
    for command in commands(document):
        program, arguments = program_of(command)
        known = known_options(program, document, bin_dir)
        if known is not None:
            given = options_in(re.split(r"(?:^| )-- | \|", arguments)[0])
            assert given <= known | {"help"}, command


def test_drawings() -> None:
    """They are plain text that fits a page, and the folders that they name are there."""
    drawings = claimed_blocks("drawing")
    assert len(drawings) > 10
    for drawing in drawings:
        assert drawing.isascii()
        assert max(map(len, drawing.splitlines())) <= 100, drawing
        for folder in re.findall(r"\b(?:core|server|client)/(?:\w+/)*", drawing):
            assert (REPOSITORY / folder).is_dir(), folder


def test_the_readme_fits_a_page() -> None:
    """No line of it, of a table or a block either, is wider than 100 columns."""
    lines = text_of("README.md").splitlines()
    assert [line for line in lines if len(line) > 100] == []


def test_fuzzers_that_commands_name_are_there() -> None:
    """Of fuzz/run, which takes minutes."""
    lines = {line for document in DOCUMENTS for line in commands(document)}
    names = {name for line in lines if "fuzz/run" in line for name in line.split()[1:]}
    targets = {f"{name}_fuzzer" for name in names if name.isalpha()}
    assert targets <= {path.stem for path in (REPOSITORY / "tests" / "fuzz").glob("*_fuzzer.cc")}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_the_text_names_are_there(document: str) -> None:
    """By their whole name, or by the end of it."""
    for span in spans(document):
        name = span.split()[0]
        if re.fullmatch(r"[\w./-]*\w\.(cc|h|py|md|proto|template)", name) or re.match(
            r"(core|client|deploy|proto|server|tests|validation)/[\w/.-]+$", name
        ):
            wanted = "/" + name.removeprefix("./").rstrip("/")
            found = [file for file in names_of_files() if f"{file}/".find(f"{wanted}/") >= 0]
            assert found, f"{document}: {span}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_that_the_text_names_are_there(bin_dir: Path, document: str) -> None:
    """In a program, or in a script."""
    scripts = [path for path in tracked() if not path.suffix and path.read_bytes()[:2] == b"#!"]
    known = options_in("\n".join(FOREIGN_OPTIONS))
    for text in [*helps(bin_dir).values(), *(path.read_text() for path in scripts)]:
        known |= options_in(text)
    known |= options_in(text_of(STORE) + text_of(LLAMA))
    for folder in ("deploy", "validation"):
        for path in (REPOSITORY / folder).glob("*.py"):
            known |= options_in(path.read_text())
    for span in spans(document):
        if re.match("--?[a-z]", span):
            assert options_in(span) <= known, f"{document}: {span}"
