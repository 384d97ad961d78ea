# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The completion scripts and the manual pages of kv-compress and of kv-compressd."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kv_compress import Run, refuse

from oracle.fixtures import REPOSITORY

PAGES = REPOSITORY / "deploy" / "packaging" / "server-pages"

# What readline does: it calls the function, and completes files where that allows it.
DRIVER = r"""
source "$1"
compopt() { printf 'compopt %s\n' "$*"; }
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$' \t\n"'"'"'><=;|&(:'
read -r -a COMP_WORDS <<<"${2/=/ = }"
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"$3"
printf '%s\n' "${COMPREPLY[@]}"
"""


def need(program: str) -> str:
    """Where a program is; skips the test where it is not."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def written(run: Run, folder: Path, *arguments: str) -> Path:
    """A file with what kv-compress printed."""
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    path = folder / "printed"
    path.write_bytes(done.stdout)
    return path


def offered(script: Path, line: str, function: str, folder: Path) -> list[str]:
    """What Tab offers behind a line."""
    command = ["bash", "--norc", "-uc", DRIVER, "_", str(script), line, function]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def flags_of(run: Run) -> list[str]:
    """Every flag of -help."""
    return re.findall(r"^  (?:-[a-z],)?--([a-z-]+)", run("-help").stdout.decode(), re.M)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kv-compress -comp", ["-compare", "-completion"]),
        ("kv-compress cache --metrics-", ["--metrics-only"]),
        ("kv-compress cache -metrics=", ["basic", "full"]),
        ("kv-compress -effort ", ["fast", "balanced", "best"]),
        ("kv-compress -effort=b", ["balanced", "best"]),
        ("kv-compress -order ", ["file", "layers"]),
        ("kv-compress -codec ecs", ["ecsq", "ecsq:contract", "ecsq:high", "ecsq:max"]),
        # Bash replaces what follows the colon.
        ("kv-compress --codec klt:", ["contract", "high", "max", "ultra"]),
        # Files are left to readline, and are not offered for what is no file.
        ("kv-compress -input ", [""]),
        ("kv-compress -d cache -o ", [""]),
        # Commands and files, where the first word begins.
        ("kv-compress com", ["compopt -o filenames", "compress", "compare"]),
        ("kv-compress f", ["compopt -o filenames", "folder"]),
        ("kv-compress compare f", [""]),
        ("kv-compress ", [""]),
        ("kv-compress -threads ", ["compopt +o default", ""]),
        ("kv-compress -shared-directory f", ["compopt -o filenames +o default", "folder"]),
        ("kv-compress -quiet -format t", ["table"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bash(run: Run, tmp_path: Path, line: str, expected: list[str]) -> None:
    """What Tab offers behind a line."""
    script = written(run, tmp_path, "-completion", "bash")
    (tmp_path / "folder").mkdir()
    assert offered(script, line, "_kv_compress", tmp_path) == expected


def test_bash_by_the_shell_itself(run: Run, tmp_path: Path) -> None:
    """An interactive shell that gets a line with a Tab."""
    script = written(run, tmp_path, "-completion", "bash")
    lines = f"source {script}\necho kv-compress >/dev/null -metrics-o\t; exit\n"
    # Tab completes the arguments of a command, so the command has to be the program's name.
    lines = (
        f'source {script}\nkv-compress() {{ echo "got: $*"; }}\nkv-compress -metrics-o\t\nexit\n'
    )
    done = subprocess.run(
        [need("script"), "-qec", "bash --norc --noprofile -i", "/dev/null"],
        input=lines.encode(),
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "TERM": "dumb", "HOME": str(tmp_path)},
        timeout=60,
    )
    assert b"got: -metrics-only" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("shell", "check"), [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])]
)
def test_scripts_have_every_flag(run: Run, tmp_path: Path, shell: str, check: list[str]) -> None:
    """And are what the shell takes, where that is installed."""
    script = written(run, tmp_path, "-completion", shell)
    text = script.read_text()
    for flag in flags_of(run):
        assert re.search(rf"[ '*-]{flag}\b", text), flag
    program = need(shell)
    done = subprocess.run([program, *check, script], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_shell_that_there_is_not(run: Run) -> None:
    """Is named, with those that there are."""
    refuse(run("-completion", "tcsh"), "tcsh.*bash, zsh or fish")


def test_manual_page(run: Run, tmp_path: Path) -> None:
    """It has every flag, codec and example of -help, and groff warns of nothing."""
    page = written(run, tmp_path, "-man")
    text = page.read_text()
    for flag in flags_of(run):
        assert re.search(rf"^\.B \\-{flag}\b".replace("-", r"\\?-"), text, re.M), flag
    for section in ("NAME", "SYNOPSIS", "OPTIONS", "CODECS", "EXIT STATUS", "EXAMPLES"):
        assert f"\n.SH {section}\n" in text
    command = [need("groff"), "-ww", "-man", "-Tutf8", str(page)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = re.sub("\x1b\\[[0-9;]*m|.\b", "", done.stdout.decode())
    assert "compress KV caches with measured quality" in shown
    assert "klt:ultra" in shown


@pytest.fixture
def server_help(bin_dir: Path) -> bytes:
    """What kv-compressd says of itself."""
    return subprocess.run([bin_dir / "kv-compressd", "--help"], capture_output=True).stdout


def page_of_server(form: str, text: bytes, folder: Path) -> Path:
    """A file with what is made of that."""
    command = [str(PAGES), form, "1.2.3"]
    done = subprocess.run(command, input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    path = folder / f"server.{form}"
    path.write_bytes(done.stdout)
    return path


def flags_of_server(text: bytes) -> list[str]:
    """Every flag of --help."""
    flags = re.findall(r"^ +(?:-h,)?--([a-z-]+)", text.decode(), re.M)
    assert len(flags) > 30
    return flags


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kv-compressd --tls-c", ["--tls-cert", "--tls-client-ca"]),
        ("kv-compressd --log-level ", ["debug", "info", "warn", "error"]),
        ("kv-compressd --log-format=j", ["json"]),
        ("kv-compressd --kernels avx", ["avx512", "avx2"]),
        ("kv-compressd --tls-key ", [""]),
        ("kv-compressd --threads ", ["compopt +o default", ""]),
        ("kv-compressd --profile-directory f", ["compopt -o filenames +o default", "folder"]),
    ],
)
def test_bash_of_the_server(
    server_help: bytes, tmp_path: Path, line: str, expected: list[str]
) -> None:
    """What Tab offers behind a line."""
    script = page_of_server("bash", server_help, tmp_path)
    (tmp_path / "folder").mkdir()
    assert offered(script, line, "_kv_compressd", tmp_path) == expected


@pytest.mark.parametrize(
    ("shell", "check"), [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])]
)
def test_scripts_have_every_flag_of_the_server(
    server_help: bytes, tmp_path: Path, shell: str, check: list[str]
) -> None:
    """And are what the shell takes, where that is installed."""
    script = page_of_server(shell, server_help, tmp_path)
    text = script.read_text()
    for flag in flags_of_server(server_help):
        assert re.search(rf"(--| -l |[ (]){flag}\b", text), flag
    program = need(shell)
    done = subprocess.run([program, *check, script], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_manual_page_of_the_server(server_help: bytes, tmp_path: Path) -> None:
    """It has every flag with its variable, and groff warns of nothing."""
    page = page_of_server("man", server_help, tmp_path)
    text = page.read_text().replace("\\-", "-")
    for flag in flags_of_server(server_help):
        assert f"\n.B --{flag}" in text
    assert "KVCOMPRESS_MAX_HEADER_BYTES" in text
    for section in ("NAME", "SYNOPSIS", "OPTIONS", "ENVIRONMENT", "EXIT STATUS"):
        assert f"\n.SH {section}\n" in text
    command = [need("groff"), "-ww", "-man", "-Tutf8", str(page)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
