# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The completion scripts and the manual page that kv-compress prints of itself."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kv_compress import Run, refuse

# What readline does: it calls the function, and completes files where that allows it.
DRIVER = r"""
source "$1"
compopt() { printf 'compopt %s\n' "$*"; }
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$' \t\n"'"'"'><=;|&(:'
_kv_compress
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


def flags_of(run: Run) -> list[str]:
    """Every flag of -help."""
    return re.findall(r"^  --([a-z-]+)", run("-help").stdout.decode(), re.M)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kv-compress -comp", ["-compare", "-completion"]),
        ("kv-compress cache --metrics-", ["--metrics-only"]),
        ("kv-compress cache -metrics=", ["basic", "full"]),
        ("kv-compress -effort ", ["fast", "balanced", "best"]),
        ("kv-compress -effort=b", ["balanced", "best"]),
        ("kv-compress -codec ecs", ["ecsq", "ecsq:contract", "ecsq:high", "ecsq:max"]),
        # Bash replaces what follows the colon.
        ("kv-compress --codec klt:", ["contract", "high", "max", "ultra"]),
        # Files are left to readline, and are not offered for what is no file.
        ("kv-compress -input ", [""]),
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
    command = ["bash", "--norc", "-uc", DRIVER, "_", str(script), line]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stderr == ""
    assert done.stdout.split("\n")[:-1] == expected


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
