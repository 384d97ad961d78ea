# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Outputs of kv-compress that would replace what must be kept."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from kv_compress import Run, bits, refuse, succeed

from oracle.fixtures import SAMPLE
from oracle.server import Server

PATIENCE_S = 60
SAME_FILE = "write output: .* is a file that is read"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of which there is no other copy, with links to it."""
    path = tmp_path / "cache"
    path.write_bytes(SAMPLE.read_bytes())
    (tmp_path / "hard").hardlink_to(path)
    (tmp_path / "soft").symlink_to("cache")
    return path


@pytest.mark.parametrize("name", ["cache", "./cache", "hard", "soft", "{folder}/cache"])
@pytest.mark.parametrize(
    "flags",
    [[], ["-codec", "int8"], ["-codec", "int8", "-force"], ["-codec", "int8", "-min-snr-db", "0"]],
    ids=["first release", "new", "force", "gate"],
)
def test_the_only_copy_is_not_replaced_by_what_is_made_of_it(
    run: Run, tmp_path: Path, cache: Path, name: str, flags: list[str]
) -> None:
    """By the service in the process, whose first release had replaced it by default."""
    output = name.format(folder=tmp_path)
    refuse(run("-input", "cache", "-output", output, *flags), SAME_FILE)
    assert cache.read_bytes() == SAMPLE.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "hard", "soft"}


def test_nor_by_a_server_or_from_standard_input(
    run: Run, bin_dir: Path, server: Server, cache: Path
) -> None:
    """Whether its bytes are sent or not."""
    for target in (server.target, server.unix_target):
        done = run("-server", target, "-input", "cache", "-output", "hard", "-force")
        refuse(done, SAME_FILE)
    with cache.open("rb") as source:
        done = subprocess.run(
            [bin_dir / "kv-compress", "-input", "-", "-output", cache, "-force"],
            stdin=source,
            capture_output=True,
            timeout=PATIENCE_S,
        )
    refuse(done, SAME_FILE)
    assert cache.read_bytes() == SAMPLE.read_bytes()


def test_nor_is_an_artefact_or_what_else_is_read(
    run: Run, tmp_path: Path, cache: Path, artefact: Path
) -> None:
    """An artefact by its restored cache, a configuration by an artefact, a cache by a profile."""
    before = artefact.read_bytes()
    refuse(run("-decompress", "-input", artefact, "-output", artefact, "-force"), SAME_FILE)
    assert artefact.read_bytes() == before
    config = tmp_path / "config.json"
    config.write_text('{"rope_theta": 10000.0, "head_dim": 64}')
    flags = ["-codec", "ecsq:high", "-model-config", config, "-force"]
    refuse(run("-input", cache, "-output", config, *flags), SAME_FILE)
    assert config.read_text().startswith("{")
    refuse(run("-train-profile", cache, "-model-label", "m", "-force", "soft"), SAME_FILE)
    assert cache.read_bytes() == SAMPLE.read_bytes()


def test_nor_is_an_input_of_several_by_the_output_of_another(run: Run, tmp_path: Path) -> None:
    """Not one file of such a batch is written."""
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(SAMPLE.read_bytes())
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.kvc.safetensors").symlink_to("../b.safetensors")
    done = run("a.safetensors", "b.safetensors", "-output", "out", "-force")
    refuse(done, SAME_FILE)
    assert (tmp_path / "b.safetensors").read_bytes() == SAMPLE.read_bytes()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.kvc.safetensors"]


def test_what_keeps_no_bytes_may_be_both(run: Run) -> None:
    """A device is no file that could be lost: it is found to be empty instead."""
    refuse(run("-input", "/dev/null", "-output", "/dev/null"), "read input|ends|empty")


@pytest.mark.parametrize("source", ["-", str(SAMPLE)], ids=["a stream", "a file"])
@pytest.mark.parametrize("force", [False, True], ids=["new", "force"])
def test_one_of_several_commands_gets_a_new_name(
    bin_dir: Path, tmp_path: Path, source: str, force: bool
) -> None:
    """Those that are late are told so, and do not replace the output of the first."""
    flags = ["-force"] if force else ["-codec", "int4"]
    program = str(bin_dir / "kv-compress")
    command = [program, "-input", source, "-output", "out", "-quiet", *flags]
    processes = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
        for _ in range(6)
    ]
    data = SAMPLE.read_bytes()
    if source == "-":
        # All of them have found that there is no output before one is given its last byte.
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(data[:-1])
            process.stdin.flush()
    results = []
    for process in processes:
        _, errors = process.communicate(data[-1:] if source == "-" else b"", timeout=PATIENCE_S)
        results.append(process.returncode)
        if process.returncode != 0:
            assert b"out already exists: give -force to overwrite it" in errors
    assert results.count(0) == (len(processes) if force else 1)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_process_left_is_removed_by_the_next(run: Run, tmp_path: Path) -> None:
    """A file under a temporary name that nobody holds; other names are not touched."""
    (tmp_path / ".kvcompress-0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".kvcompress-notes.tmp").write_bytes(b"mine")
    succeed(run("-input", SAMPLE, "-output", "out"))
    assert {path.name for path in tmp_path.iterdir()} == {".kvcompress-notes.tmp", "out"}


def closed(bin_dir: Path, folder: Path, redirections: str, *arguments: object) -> tuple[int, str]:
    """Runs kv-compress with descriptors closed; exit status and standard error."""
    words = [str(bin_dir / "kv-compress"), *map(str, arguments)]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "flags", [["-info"], ["-verify"], ["-metrics-only", "-input"], ["-output", "out", "-input"]]
)
def test_a_closed_standard_input_is_said_so(
    bin_dir: Path, tmp_path: Path, flags: list[str]
) -> None:
    """Its number would be that of the first file that is opened, and reading that never ends."""
    code, errors = closed(bin_dir, tmp_path, "<&-", *flags, "-")
    assert (code, errors) == (1, "Error: read input: standard input is closed\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_files_are_written_without_standard_descriptors(
    run: Run, bin_dir: Path, tmp_path: Path, redirections: str
) -> None:
    """And nothing that was to be printed gets into them."""
    succeed(run("-input", SAMPLE, "-output", "expected"))
    code, _ = closed(bin_dir, tmp_path, redirections, "-input", SAMPLE, "-output", "out")
    assert code == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()


def test_a_closed_standard_output_takes_no_cache(bin_dir: Path, tmp_path: Path) -> None:
    """It would be lost."""
    code, errors = closed(bin_dir, tmp_path, ">&-", "-input", SAMPLE, "-output", "-")
    assert (code, errors) == (1, "Error: write output: standard output is closed\n")


@pytest.mark.parametrize("source", ["-", str(SAMPLE)], ids=["a stream", "a file"])
def test_a_limit_of_file_size_is_an_error(bin_dir: Path, tmp_path: Path, source: str) -> None:
    """Not a signal, which would end the command without a word."""
    with SAMPLE.open("rb") as stdin:
        program = bin_dir / "kv-compress"
        done = subprocess.run(
            ["prlimit", "--fsize=4096", program, "-input", source, "-output", "out"],
            stdin=stdin,
            capture_output=True,
            cwd=tmp_path,
            timeout=PATIENCE_S,
        )
    refuse(done, "(?i)file too large")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("remote", [False, True], ids=["own", "server"])
@pytest.mark.parametrize("flags", [[], ["-min-snr-db", "0"]], ids=["names", "stream"])
def test_what_few_may_read_stays_so(
    run: Run, cache: Path, server: Server, remote: bool, flags: list[str]
) -> None:
    """The artefact has the permissions of the cache, and what is restored those of the artefact."""
    cache.chmod(0o640)
    where = ["-server", server.target] if remote else []
    succeed(run("compress", cache, "-o", "small", *flags, *where))
    artefact = cache.with_name("small")
    assert artefact.stat().st_mode & 0o777 == 0o640
    artefact.chmod(0o600)
    succeed(run("restore", "small", "-o", "back", *where))
    assert cache.with_name("back").stat().st_mode & 0o777 == 0o600


def test_a_reader_that_stops_is_no_error(bin_dir: Path) -> None:
    """As `| head` does; the process ends as SIGPIPE ends others, and nothing is printed."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(bin_dir / "kv-compress"), "info", str(SAMPLE)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == -signal.SIGPIPE


def test_json_does_not_act_on_a_terminal(run: Run, tmp_path: Path) -> None:
    """Names of files and labels keep their meaning, and are escaped."""
    name = "a\x1b\x7f\x9b2J\u202egpj\u2028"
    (tmp_path / name).write_bytes(SAMPLE.read_bytes())
    done = run(name, "-output", f"{tmp_path}{os.sep}", "-codec", "int8")
    assert succeed(done)["input"] == name
    assert done.stdout.decode().strip().isascii()
    assert b"\x7f" not in done.stdout


def test_outputs_that_nobody_names(run: Run, tmp_path: Path, artefact: Path) -> None:
    """They lie next to the input, of which there and back nothing is overwritten."""
    folder = tmp_path / "folder"
    folder.mkdir()
    cache = folder / "cache.safetensors"
    cache.write_bytes(SAMPLE.read_bytes())
    made, restored = folder / "cache.kvc.safetensors", folder / "cache.restored.safetensors"
    succeed(run(cache, "-codec", "int4"))
    assert made.read_bytes() == artefact.read_bytes()
    succeed(run("-d", made))
    assert restored.exists()
    assert cache.read_bytes() == SAMPLE.read_bytes()
    kept = restored.read_bytes()
    for again in ([cache], ["-input", cache, "-codec", "lossless"], ["-d", made]):
        refuse(run(*again), "already exists: give -force")
    assert made.read_bytes() == artefact.read_bytes()
    assert restored.read_bytes() == kept
    succeed(run("-input", cache, "-codec", "lossless", "-force"))
    succeed(run("-d", made, "-force"))
    assert bits(restored) == bits(cache)
    assert {path.name for path in folder.iterdir()} == {cache.name, made.name, restored.name}


def test_flags_of_one_letter(run: Run, tmp_path: Path, artefact: Path) -> None:
    """-o and -d mean -output and -decompress, and overwrite nothing."""
    succeed(run(SAMPLE, "-codec", "int4", "-o", "made"))
    assert (tmp_path / "made").read_bytes() == artefact.read_bytes()
    succeed(run("-d", "made", "-o", "restored"))
    refuse(run("-input", SAMPLE, "-o", "made"), "already exists")


def test_a_stream_goes_to_standard_output(run: Run, tmp_path: Path, artefact: Path) -> None:
    """As gzip does it; what has no name of its own needs one for its result."""
    done = run("-", "-codec", "int4", stdin=SAMPLE.read_bytes())
    assert done.stdout == artefact.read_bytes()
    done = run("-d", "-", stdin=artefact.read_bytes())
    (tmp_path / "restored").write_bytes(done.stdout)
    assert list(bits(tmp_path / "restored")) == list(bits(SAMPLE))
    refuse(run("/dev/stdin", stdin=SAMPLE.read_bytes()), "-output is required: /dev/stdin")
    refuse(run(SAMPLE, "-o", ""), "-output is required")


def test_several_outputs_that_nobody_names(run: Run, tmp_path: Path) -> None:
    """Each lies next to its input."""
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "deep/b"):
        (folder / f"{name}.safetensors").write_bytes(SAMPLE.read_bytes())
    made = ["a.kvc.safetensors", "deep/b.kvc.safetensors"]
    assert run(folder).returncode == 0
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.kvc.*")) == made
    assert run("-d", *(folder / name for name in made)).returncode == 0
    restored = ["a.restored.safetensors", "deep/b.restored.safetensors"]
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.restored.*")) == restored
