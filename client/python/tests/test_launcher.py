# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The console scripts find the programs and become them; these programs are shell scripts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvcompress

SOURCES = Path(kvcompress.__file__).parents[1]
# As pip writes it for the entry in pyproject.toml.
CONSOLE_SCRIPT = f"""\
#!{sys.executable}
import sys
from kvcompress.__main__ import main
if __name__ == '__main__':
    sys.exit(main())
"""


PRINTING = '#!/bin/sh\necho "$0: $*"\n'


def program(folder: Path, text: str = PRINTING, name: str = "kv-compress") -> Path:
    """Writes a program."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def launch(
    *arguments: str | bytes,
    path: str = "",
    bin_dir: str = "",
    sources: Path = SOURCES,
    script: Path | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Runs the module, or a console script, with these places to look in."""
    command = [sys.executable, "-m", "kvcompress"] if script is None else [str(script)]
    modules = os.pathsep.join([str(sources), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*command, *arguments],
        env={**environment, "PATH": path, "KVCOMPRESS_BIN_DIR": bin_dir},
        capture_output=True,
        timeout=30,
    )


def test_places_in_their_order(tmp_path: Path) -> None:
    """KVCOMPRESS_BIN_DIR, then the PATH from its beginning."""
    first, second, named = (tmp_path / name for name in ("first", "second", "named"))
    path = os.pathsep.join(map(str, (tmp_path / "absent", first, second)))
    (first / "kv-compress").mkdir(parents=True)  # a folder is no program
    for folder, bin_dir in ((second, ""), (named, str(named))):
        expected = program(folder)
        done = launch("-version", path=path, bin_dir=bin_dir)
        assert (done.returncode, done.stdout) == (0, f"{expected}: -version\n".encode())


def test_program_in_the_package(tmp_path: Path) -> None:
    """It comes first: a wheel with programs in it is complete."""
    package = tmp_path / "kvcompress"
    package.mkdir()
    for path in (SOURCES / "kvcompress").iterdir():
        if path.name != "bin":
            (package / path.name).symlink_to(path)
    expected = program(package / "bin")
    program(tmp_path / "named")
    done = launch("-help", bin_dir=str(tmp_path / "named"), sources=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{expected}: -help\n".encode()), done.stderr


def test_console_scripts_are_passed_over(tmp_path: Path) -> None:
    """That of this environment and those of others, wherever they lie."""
    own, other = (program(tmp_path / name, CONSOLE_SCRIPT) for name in ("own", "other"))
    path = os.pathsep.join(str(script.parent) for script in (own, other))
    done = launch(path=path, bin_dir=str(other.parent), script=own)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"Error: no kv-compress to run: "), done.stderr
    expected = program(tmp_path / "native")
    done = launch("-info", path=os.pathsep.join([path, str(expected.parent)]), script=own)
    assert (done.returncode, done.stdout) == (0, f"{expected}: -info\n".encode()), done.stderr


def test_console_script_leads_to_the_program_of_its_wheel(tmp_path: Path) -> None:
    """Of an environment on the PATH, where the package that runs has no programs."""
    script = program(tmp_path / "bin", CONSOLE_SCRIPT)
    expected = program(tmp_path / "lib" / "python3.13" / "site-packages" / "kvcompress" / "bin")
    done = launch("-info", path=str(script.parent))
    assert (done.returncode, done.stdout) == (0, f"{expected}: -info\n".encode()), done.stderr


def test_console_script_of_the_server(tmp_path: Path) -> None:
    """It passes itself over too, and becomes kv-compressd."""
    script = program(
        tmp_path / "own",
        CONSOLE_SCRIPT.replace("main()", "serve()").replace("import main", "import serve"),
        "kv-compressd",
    )
    done = launch(path=str(script.parent), script=script)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"Error: no kv-compressd to run: "), done.stderr
    expected = program(tmp_path / "native", name="kv-compressd")
    path = os.pathsep.join(str(each.parent) for each in (script, expected))
    done = launch("--version", path=path, script=script)
    assert (done.returncode, done.stdout) == (0, f"{expected}: --version\n".encode()), done.stderr


def test_arguments_are_passed_as_they_are(tmp_path: Path) -> None:
    """Empty ones, those with spaces, and bytes that are not UTF-8."""
    text = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n'
    done = launch("", "two words", b"\xff\xfe", "*", bin_dir=str(program(tmp_path, text).parent))
    assert done.stdout == b"\ntwo words\n\xff\xfe\n*\n"


@pytest.mark.parametrize("ending", ["exit 2", "kill -TERM $$"])
def test_exit_status_is_that_of_the_program(tmp_path: Path, ending: str) -> None:
    """And so is the process: nothing of Python is left in it to print or to wait."""
    folder = program(tmp_path, f"#!/bin/sh\n{ending}\n").parent
    done = launch(bin_dir=str(folder))
    assert (done.returncode, done.stderr) == ({"exit 2": 2}.get(ending, -15), b"")


def test_no_program() -> None:
    """The message says how to get it, and what works without it."""
    done = launch("-version")
    assert (done.returncode, done.stdout) == (1, b"")
    for words in ("deploy/build", "KVCOMPRESS_BIN_DIR", "kvcompress.Client(ADDRESS)"):
        assert words in done.stderr.decode()


def test_program_of_another_system(tmp_path: Path) -> None:
    """It is named."""
    path = program(tmp_path, "\x7fELF of something else")
    done = launch(bin_dir=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(f"Error: {path} cannot be run: Exec format error".encode())
