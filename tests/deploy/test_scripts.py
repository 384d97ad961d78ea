# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The scripts that users run: what they print, and that they can fail."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from documents import claimed, claimed_line, run_line, text_of

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 90

# A second run of a script, on a busy machine.
AGAIN_SECONDS = 30


def run(*command: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program in the root of the repository."""
    return subprocess.run(
        list(map(str, command)),
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def running(text: str) -> list[str]:
    """The command lines of processes in which the text occurs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """A folder for the temporary files of a run."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture
def fakes(tmp_path: Path, bin_dir: Path) -> Path:
    """A folder of binaries that a test can put its own in place of."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("kv-compress", "kv-compressd"):
        (folder / name).symlink_to(bin_dir.resolve() / name)
    return folder


def replace(path: Path, script: str) -> None:
    """Puts a shell script instead of a binary."""
    path.unlink()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def round_trip(binaries: Path, temporary: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the second half of quickstart on these binaries."""
    program = "import pathlib, sys, round_trip; round_trip.BIN = pathlib.Path(sys.argv[1]); "
    program += "round_trip.main()"
    paths = [str(REPOSITORY / "deploy"), str(REPOSITORY / "client" / "python" / "src")]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(temporary)}
    return run(sys.executable, "-c", program, binaries, **variables)


@pytest.mark.parametrize("script", ["deploy/build", "deploy/python-env", "tests/run"])
def test_help(script: str) -> None:
    """--help succeeds; what is not known is refused, and nothing is done."""
    done = run(script, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: {script}")
    done = run(script, "--bogus")
    assert done.returncode == 1
    assert "--bogus" in done.stderr


@pytest.mark.parametrize("script", ["deploy/quickstart", "deploy/capacity"])
def test_arguments_that_are_not_taken(script: str) -> None:
    """Whoever asks such a script for help has not asked for minutes of work."""
    done = run(script, "--help")
    assert done.returncode == 1
    assert "takes no arguments" in done.stderr


def test_link() -> None:
    """The guide has the table that it prints, and a row for a link and cores of one's own."""
    whole, own = claimed("link", "docs/guides/sizing.md")
    assert run_line(whole) in text_of("docs/guides/sizing.md")
    [_, _, row] = run_line(own).splitlines()
    assert re.fullmatch(r"\| 40 \| 0\.86 s \| `int4` 0\.\d\d s, 1\.\dx \|", row)
    done = run("deploy/link.py", "--cores", "0")
    assert done.returncode == 2
    assert "above 0" in done.stderr


def test_quickstart(temporary: Path) -> None:
    """The table of codecs first, then the round trip of one, and nothing left behind."""
    output = run_line(claimed_line("quickstart"), seconds=SECONDS, TMPDIR=str(temporary))
    for row in (
        r"lossless +1\.48x +exact +60 of 60 +0% +[0-9,]+ +[0-9,]+$",
        r"int4 +3\.71x +14\.9 dB +9 of 60 +100% +[0-9,]+ +[0-9,]+$",
        r"ecsq:contract +[0-9.]+x +[0-9.]+ dB +60 of 60 +5% +[0-9,]+ +[0-9,]+$",
        r"auto +4\.[0-9]+x +[0-9.]+ dB +60 of 60 +5% +[0-9,]+ +[0-9,]+$",
        r"bytes before +2,211,840",
        r"bytes after +[0-9,]+",
        r"ratio +[0-9.]+",
        r"RMSE +[0-9.]+",
        r"SNR +[0-9.]+ dB",
        r"cosine +0\.[0-9]+",
        r"max error +[0-9.]+",
        r"verdict +(EXCELLENT|GOOD|ACCEPTABLE), passed$",
        r"compress +[0-9,]+ MB/s",
        r"decompress +[0-9,]+ MB/s",
    ):
        assert re.search(rf"^ *{row}", output, re.MULTILINE), row
    assert re.search(r"in bounds.*bytes before.*Verified, for each codec", output, re.DOTALL)
    assert "bin/kv-compressd --listen" in output
    assert max(len(line) for line in output.splitlines()) <= 100
    assert list(temporary.iterdir()) == []


def test_damage_is_that_of_the_table_of_the_study() -> None:
    """By the heading of the column, for the names that codec strings have."""
    program = "import json, round_trip; print(json.dumps(round_trip.damage_by_codec()))"
    paths = [str(REPOSITORY / "deploy"), str(REPOSITORY / "client" / "python" / "src")]
    done = run(sys.executable, "-c", program, PYTHONPATH=os.pathsep.join(paths))
    damage = json.loads(done.stdout)
    assert {"lossless": "0%", "int4": "100%"}.items() <= damage.items()
    page = text_of("validation/results/models/smollm2/codec_study.md")
    [row] = re.findall(r"(?m)^\| `klt ultra` \|.*", page)
    assert damage["klt:ultra"] == row.split(" | ")[5]


@pytest.mark.parametrize(
    ("binary", "script", "words"),
    [
        ("kv-compressd", "echo no luck; exit 4", "ended at once.*no luck"),
        ("kv-compress", "echo out of order >&2; exit 1", "status 1.*out of order"),
        ("kv-compress", "echo '{}'", "not verified"),
        (
            "kv-compress",
            """$REAL "$@" | sed 's/"rmse": 0/"rmse": 1/'""",
            "rmse is .* by NumPy, and was reported as",
        ),
        (
            "kv-compress",
            """$REAL "$@" && for last; do :; done && case $last in *restored*)
            printf X | dd of="$last" bs=1 seek=500000 conv=notrunc status=none;; esac""",
            "not verified",
        ),
    ],
    ids=["server_dies", "client_fails", "no_metrics", "client_lies", "other_values"],
)
def test_quickstart_can_fail(
    fakes: Path, temporary: Path, binary: str, script: str, words: str
) -> None:
    """Whatever goes wrong is said; the server is stopped, the files are gone."""
    real = (fakes / binary).resolve()
    replace(fakes / binary, script.replace("$REAL", str(real)))
    done = round_trip(fakes, temporary)
    assert done.returncode == 1
    assert re.search(words, done.stderr, re.DOTALL), done.stderr
    assert "Traceback" not in done.stderr
    assert "Verified" not in done.stdout
    assert running(str(fakes)) == []
    assert list(temporary.iterdir()) == []


def test_quickstart_stopped_by_a_signal(fakes: Path, temporary: Path) -> None:
    """The server does not outlive it."""
    replace(fakes / "kv-compress", "exec sleep 60")
    paths = [str(REPOSITORY / "deploy"), str(REPOSITORY / "client" / "python" / "src")]
    program = f"import pathlib, round_trip; round_trip.BIN = pathlib.Path({str(fakes)!r}); "
    process = subprocess.Popen(
        [sys.executable, "-c", program + "round_trip.main()"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + SECONDS
    while len(running(str(fakes))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.terminate()
    assert process.wait(SECONDS) == 128 + 15
    assert [line for line in running(str(fakes)) if "kv-compressd" in line] == []
    assert list(temporary.iterdir()) == []


def test_building_again_takes_seconds() -> None:
    """Nothing is installed, configured or compiled a second time."""
    if "KVCOMPRESS_BIN_DIR" in os.environ:
        pytest.skip("KVCOMPRESS_BIN_DIR names other binaries than those of bin/")
    begun = time.monotonic()
    assert "installing" not in run_line(f"{claimed_line('build')} 2>&1", seconds=SECONDS)
    assert time.monotonic() - begun < AGAIN_SECONDS


def test_environment_is_made_once() -> None:
    """The same files give the same environment, at once."""
    first = run("deploy/python-env")
    begun = time.monotonic()
    second = run("deploy/python-env")
    assert first.returncode == 0, first.stderr
    assert second.stdout == first.stdout
    assert time.monotonic() - begun < AGAIN_SECONDS
    python = Path(first.stdout.strip()) / "bin" / "python"
    assert run(python, "-c", "import grpc, numpy, xxhash").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_environment_without_what_the_files_leave_out(temporary: Path) -> None:
    """--no-deps installs what is listed and nothing else, in an environment of its own."""
    file = temporary / "requirements.txt"
    file.write_text("jinja2==3.1.6\n")
    cache = {"XDG_CACHE_HOME": str(temporary)}
    alone = run("deploy/python-env", "--no-deps", file, **cache)
    whole = run("deploy/python-env", file, **cache)
    assert alone.returncode == whole.returncode == 0, alone.stderr + whole.stderr
    assert alone.stdout != whole.stdout
    find = "import importlib.util as u; print(*(u.find_spec(n) is not None for n in {!r}))"
    for done, expected in ((alone, "True False"), (whole, "True True")):
        python = Path(done.stdout.strip()) / "bin" / "python"
        found = run(python, "-c", find.format(("jinja2", "markupsafe")))
        assert found.stdout.strip() == expected


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_environment_without_a_cache_folder(temporary: Path) -> None:
    """Where the cache cannot be written, the environment is made under TMPDIR."""
    done = run("deploy/python-env", XDG_CACHE_HOME="/proc/none", TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(temporary))


def test_counting(tmp_path: Path) -> None:
    """Every outcome of a JUnit report is counted, as pytest and CTest write them."""
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure/></testcase>'
        '<testcase name="c"><error/></testcase><testcase name="d"><skipped message="why"/>'
        '</testcase><testcase name="e" status="run"/><testcase name="f" status="disabled"/>'
        "</testsuite></testsuites>"
    )
    done = run("tests/tools/count", report, "--name", "x")
    assert done.stdout == "2 2 2\n"
    assert "skipped d: why" in done.stderr
