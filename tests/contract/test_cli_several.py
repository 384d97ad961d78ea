# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress with several files and folders, and what it prints where: -format, -quiet, -force."""

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kv_compress import Run, bits, refuse, succeed

from oracle.fixtures import SAMPLE
from oracle.server import Server


def lines_of(done: "subprocess.CompletedProcess[bytes]") -> list[dict[str, Any]]:
    """The lines of JSON that a run printed."""
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


@pytest.fixture
def caches(tmp_path: Path) -> Path:
    """A folder with two caches, one of them further below, and files of other kinds."""
    folder = tmp_path / "caches"
    (folder / "deep").mkdir(parents=True)
    shutil.copy(SAMPLE, folder / "a.safetensors")
    shutil.copy(SAMPLE, folder / "deep" / "b.safetensors")
    (folder / "notes.txt").write_text("none")
    (folder / "old.kvc.safetensors").write_text("an artefact, not a cache")
    return folder


def files_below(folder: Path) -> list[str]:
    """Their paths below the folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_one_file_without_input(run: Run, tmp_path: Path, artefact: Path) -> None:
    """An argument is the same as -input, before and behind flags."""
    succeed(run(SAMPLE, "-output", "one", "-codec", "int4"))
    succeed(run("-output", "two", "-group-size", "64", SAMPLE))
    assert (tmp_path / "one").read_bytes() == artefact.read_bytes()
    assert (tmp_path / "two").read_bytes() == artefact.read_bytes()
    done = run("-output", "-", "-codec", "int4", "--", "-", stdin=SAMPLE.read_bytes())
    assert done.stdout == artefact.read_bytes()
    refuse(run("-input", SAMPLE, "-output", "out", SAMPLE), "unexpected argument")


def test_codec_of_who_names_none(run: Run, artefact: Path, tmp_path: Path) -> None:
    """The first release's int4 for its flags; else auto at effort fast, as in the API."""
    wanted = succeed(run("-metrics-only", SAMPLE, "-codec", "auto", "-effort", "fast"))
    for arguments in ((SAMPLE,), ("-input", SAMPLE, "-threads", "2")):
        made = succeed(run("-metrics-only", *arguments))
        assert (made["codec"], made["rmse"]) == ("auto", wanted["rmse"])
    best = succeed(run("-metrics-only", SAMPLE, "-effort", "best"))
    assert best["codec"] == "auto"
    assert best["compressed_size_bytes"] <= wanted["compressed_size_bytes"]
    succeed(run("-input", SAMPLE, "-output", "first"))
    assert (tmp_path / "first").read_bytes() == artefact.read_bytes()
    for flags in (("-group-size", "64"), ("-group-size", "64", "-threads", "2")):
        assert succeed(run("-metrics-only", SAMPLE, *flags))["codec"] == "int4:64"


@pytest.mark.parametrize("served", [False, True], ids=["embedded", "server"])
def test_folders_there_and_back(
    run: Run, tmp_path: Path, caches: Path, artefact: Path, server: Server, served: bool
) -> None:
    """Outputs keep their place below the folder, and have the bytes of single runs."""
    where = ["-server", server.target] if served else []
    done = run(caches, "-output", "made", "-codec", "int4", *where)
    lines = lines_of(done)
    assert [Path(line["input"]).name for line in lines] == ["a.safetensors", "b.safetensors"]
    assert [line["exit_status"] for line in lines] == [0, 0]
    assert lines[0]["compressed_size_bytes"] == artefact.stat().st_size
    made = tmp_path / "made"
    assert files_below(made) == ["a.kvc.safetensors", "deep/b.kvc.safetensors"]
    assert (made / "deep" / "b.kvc.safetensors").read_bytes() == artefact.read_bytes()
    verified = lines_of(run("-verify", made, *where))
    assert [line["verified"] for line in verified] == [True, True]
    assert run("-decompress", made, "-output", "back/", *where).returncode == 0
    assert files_below(tmp_path / "back") == ["a.safetensors", "deep/b.safetensors"]
    restored = bits(tmp_path / "back" / "a.safetensors")
    assert list(restored) == list(bits(SAMPLE))
    infos = lines_of(run("-info", made / "a.kvc.safetensors", caches / "a.safetensors"))
    assert [info["format"] for info in infos] == ["kvcompress", "safetensors"]


def test_artefacts_in_a_folder_are_not_compressed_again(
    run: Run, tmp_path: Path, caches: Path, artefact: Path
) -> None:
    """A line says how many were skipped, whatever they are called."""
    shutil.copy(artefact, caches / "deep" / "old.safetensors")
    done = run(caches, "-output", "made")
    assert (done.returncode, len(lines_of(done))) == (0, 2)
    skipped = f"Skipped 2 artefacts below {caches}, compressed already"
    assert skipped in done.stderr.decode().splitlines()
    assert run(caches, "-output", "again", "-quiet").stderr == b""
    (caches / "deep" / "b.safetensors").unlink()
    words = "below .*deep there is nothing but 1 artefact, compressed already"
    refuse(run(caches / "deep", "-output", "none"), words)


def test_errors_follow_the_table(run: Run, bin_dir: Path, caches: Path) -> None:
    """And a summary follows them; with JSON, where all went well, there is none."""
    (caches / "0.safetensors").write_bytes(SAMPLE.read_bytes()[:-1])
    command = [str(bin_dir / "kv-compress"), str(caches)]
    command += ["-metrics-only", "-codec", "int4", "-format", "table"]
    merged = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )
    lines = merged.stdout.splitlines()
    assert lines[0].startswith("Skipped 1 artefact below ")
    assert [line.split()[0] for line in lines[1:5]] == ["ratio", "failed", "3.71x", "3.71x"]
    assert re.match(r"Error: .*0\.safetensors: .*ends 1 byte", lines[-3])
    assert lines[-2].startswith("Warning: the quality of 2 of 3 files is POOR")
    assert lines[-1] == "3 files: 2 measured, 1 failed"
    done = run(caches, "-metrics-only", "-codec", "int4", "-min-snr-db", "60")
    assert done.stderr.endswith(b"\n3 files: 0 measured, 2 not within the bounds, 1 failed\n")
    done = run("-quiet", caches, "-metrics-only")
    assert done.stderr.decode().splitlines()[1:] == ["3 files: 2 measured, 1 failed"]
    (caches / "0.safetensors").unlink()
    assert b" files: " not in run(caches, "-metrics-only").stderr


def test_one_failure_does_not_stop_the_others(run: Run, caches: Path) -> None:
    """The exit status is the worst: an error, then a missed bound."""
    broken = caches / "broken.safetensors"
    broken.write_bytes(SAMPLE.read_bytes()[:-1])
    done = run(broken, caches / "a.safetensors", "-metrics-only")
    assert done.returncode == 1
    failed, measured = lines_of(done)
    assert (failed["exit_status"], measured["exit_status"]) == (1, 0)
    assert "ends 1 byte" in failed["error"]["message"]
    assert re.search(r"^Error: .*broken\.safetensors: .*ends 1 byte", done.stderr.decode(), re.M)
    broken.unlink()
    bound = ["-codec", "int4", "-min-snr-db", "100"]
    done = run(caches, "-output", "made", *bound)
    assert done.returncode == 2
    assert [line["exit_status"] for line in lines_of(done)] == [2, 2]
    assert run(caches, "absent", "-metrics-only", *bound).returncode == 1


def test_mistakes_with_several_files(run: Run, tmp_path: Path, caches: Path) -> None:
    """Found before anything is done."""
    one, two = caches / "a.safetensors", tmp_path / "a.safetensors"
    shutil.copy(SAMPLE, two)
    refuse(run(one, two, "-output", "made"), "would both be written to made/a.kvc.safetensors")
    refuse(run(one, caches, "-output", two), "is no folder")
    refuse(run(one, caches, "-output", "-"), "is no folder")
    refuse(run("-", one, "-output", "made"), "standard input has no name")
    refuse(
        run("-decompress", caches / "deep", "-output", "made"), "no file below .*kvc.safetensors"
    )
    assert not (tmp_path / "made").exists()


def test_overwriting_needs_leave(run: Run, tmp_path: Path, artefact: Path) -> None:
    """But for an invocation of the first release, which always overwrote."""
    old = tmp_path / "old"
    old.write_text("precious")
    for arguments in (
        ("-input", SAMPLE, "-output", old, "-codec", "int8"),
        (SAMPLE, "-output", old),
        ("-decompress", artefact, "-output", old),
        ("-train-profile", old, "-model-label", "m", SAMPLE),
    ):
        refuse(run(*arguments), "old already exists: give -force")
        assert old.read_text() == "precious"
    succeed(run(SAMPLE, "-output", old, "-force", "-codec", "int4"))
    assert old.read_bytes() == artefact.read_bytes()
    old.write_text("precious")
    succeed(run("-input", SAMPLE, "-output", old, "-group-size", "64", "-verbose"))
    assert old.read_bytes() == artefact.read_bytes()
    made = run(SAMPLE, artefact.with_name("absent"), "-output", tmp_path / "made")
    assert made.returncode == 1
    again = run(SAMPLE, SAMPLE.with_name("absent"), "-output", tmp_path / "made")
    assert "already exists" in lines_of(again)[0]["error"]["message"]
    assert run("-input", SAMPLE, "-output", "/dev/null", "-codec", "int8").returncode == 0


def test_quiet(run: Run, tmp_path: Path) -> None:
    """Standard error has errors and nothing else."""
    loud = run("-input", SAMPLE, "-metrics-only", "-verbose")
    assert b"Hint: " in loud.stderr
    assert b"service: " in loud.stderr
    hushed = run("-input", SAMPLE, "-metrics-only", "-verbose", "-quiet")
    assert hushed.stderr == b""
    assert json.loads(hushed.stdout).keys() == json.loads(loud.stdout).keys()
    done = run("-quiet", "-", "-output", "-", stdin=SAMPLE.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    refuse(run("-quiet", "-info", tmp_path / "absent"), "no such file")
    refuse(run("-quiet", "-progress", "-metrics-only", SAMPLE), "cannot be combined")


def test_tables(run: Run, artefact: Path) -> None:
    """The same facts in columns."""
    done = run("-metrics-only", SAMPLE, "-format", "table", "-codec", "auto", "-verbose")
    text = done.stdout.decode()
    assert re.search(r"^codec +auto$", text, re.M)
    assert re.search(r"^tensors +60 of 60 within the thresholds; 30 keys, 30 values", text, re.M)
    assert re.search(r"^layer_0_key +key +ecsq\S* +\d\.\d\d +\d+\.\d +\w+ +yes$", text, re.M)
    text = run("-info", artefact, "-format", "table").stdout.decode()
    assert re.search(r"^layer_0_key +key +BF16 +\[1, 3, 96, 64\] +int4:64 ", text, re.M)
    text = run("-info", SAMPLE, "-format", "table").stdout.decode()
    assert re.search(r"^format +safetensors, not compressed$", text, re.M)
    text = run("-verify", artefact, "-format=table").stdout.decode()
    assert re.search(r"^verified +yes", text, re.M)
    assert re.search(r"^tensors +60, all decoded$", text, re.M)
    done = run("-decompress", "-tokens", "0:32", artefact, "-output", "part", "-format=table")
    assert re.search(r"^size +596.0 kB -> 742.4 kB of 2.2 MB, 3.71x$", done.stdout.decode(), re.M)
    gate = ("-codec", "int4", "-min-snr-db", "60")
    refused = run(SAMPLE, "-output", "refused", *gate, "-format", "table")
    assert refused.returncode == 2
    assert re.search(r"^file +\S+safetensors$", refused.stdout.decode(), re.M)
    assert b"does not hold the bounds, and no file is written; " in refused.stderr
    options = ("-codec", "int4", "-format", "table")
    text = run("-metrics-only", SAMPLE, "absent", *options).stdout.decode()
    heading, row, failed = text.splitlines()
    assert heading.split()[0] == "ratio"
    assert row.split()[:6] == ["3.71x", "9.3", "14.9", "9", "of", "60"]
    assert failed.split() == ["failed", "absent"]
    refuse(run("-info", SAMPLE, "-format", "xml"), "must be json or table")


def on_terminal(bin_dir: Path, folder: Path, *arguments: object) -> tuple[str, str]:
    """What a run prints on terminals: standard output and standard error."""
    texts = []
    (out, out_end), (err, err_end) = pty.openpty(), pty.openpty()
    command = [str(bin_dir / "kv-compress"), *map(str, arguments)]
    process = subprocess.Popen(command, cwd=folder, stdout=out_end, stderr=err_end)
    os.close(out_end)
    os.close(err_end)
    for end in (out, err):
        data = b""
        try:
            while block := os.read(end, 65536):
                data += block
        except OSError:  # the other end is closed
            pass
        os.close(end)
        texts.append(data.decode().replace("\r\n", "\n"))
    assert process.wait(60) == 0, texts
    return texts[0], texts[1]


def test_the_format_on_a_terminal(bin_dir: Path, tmp_path: Path) -> None:
    """A table for people, JSON for the invocations of the first release."""
    assert json.loads(on_terminal(bin_dir, tmp_path, "-input", SAMPLE, "-metrics-only")[0])
    assert on_terminal(bin_dir, tmp_path, "-info", SAMPLE)[0].startswith("file ")
    output = on_terminal(bin_dir, tmp_path, "-info", SAMPLE, "-format", "json")[0]
    assert json.loads(output)["tensor_count"] == 60


def test_progress_on_a_terminal(bin_dir: Path, tmp_path: Path) -> None:
    """Share, bytes of how many, speed, and which file of how many."""
    shutil.copy(SAMPLE, tmp_path / "b.safetensors")
    flags = ("-metrics-only", "-progress", "always")
    errors = on_terminal(bin_dir, tmp_path, *flags, SAMPLE, tmp_path / "b.safetensors")[1]
    assert re.search(r"\r1/2 +\d+% \[[# ]{30}\] \d+\.\d of 2\.2 MB  \d+\.\d MB/s", errors)
    assert re.search(r"\r2/2 +100% \[#{30}\] 2\.2 of 2\.2 MB  \d+\.\d MB/s\S*\n", errors)
