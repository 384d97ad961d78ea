# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The command bench: load on a real server, and what is printed of it."""

import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from documents import claimed, claimed_blocks, run_line
from kv_compress import Run, refuse, succeed

from oracle.fixtures import REPOSITORY, SAMPLE
from oracle.server import Server, free_port, running_server

GOLDEN = REPOSITORY / "tests" / "golden" / "profile"
SHORT = ["-seconds", "0.1", "-size", "256KiB"]
COLUMNS = re.compile(
    r"(?P<codec>\S+) +(?P<direction>compress|restore) +(?P<concurrency>\d+) +(?P<calls>\d+)"
    r" +(?P<per_second>[\d.]+) +(?P<mb>\d+) +(?P<p50>[\d.]+) +(?P<p99>[\d.]+) +(?P<ratio>[\d.]+)x"
    r" +(?P<cpu>[\d.]+)  (?P<errors>.+)"
)


def check(row: dict[str, Any], size: int) -> None:
    """The numbers of a measurement without errors follow from each other."""
    assert row["calls"] >= row["concurrency"]
    assert row["calls_per_second"] == pytest.approx(row["calls"] / row["seconds"])
    assert row["mb_per_second"] == pytest.approx(row["calls_per_second"] * size / 1e6)
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= 1000 * row["seconds"]
    assert row["compression_ratio"] > 1
    assert row["client_cpu_seconds_per_gb"] > 0
    assert (row["failed_calls"], row["errors"], row["error"]) == (0, {}, None)


def connections(server: Server) -> int:
    """How many the server has accepted."""
    url = f"http://{server.metrics_address}/metrics"
    with urllib.request.urlopen(url, timeout=30) as page:
        text = page.read().decode()
    found = re.search(r"^kvcompress_connections_accepted_total(?:{.*})? (\d+)", text, re.M)
    assert found
    return int(found[1])


def test_codecs_directions_and_concurrencies(run: Run, server: Server) -> None:
    """Each with a row, on as many connections as there are calls at a time."""
    before = connections(server)
    where = ["-server", server.target, "-codec", "int4,lossless", "-concurrency", "1,8"]
    answer = succeed(run("bench", *where, *SHORT, "-json"))
    # The server makes a few to itself.
    assert connections(server) - before >= 8
    assert answer["server"] == server.target
    assert (answer["input"], answer["seconds"]) == (None, 0.1)
    rows = answer["measurements"]
    assert [(row["codec"], row["concurrency"], row["direction"]) for row in rows] == [
        (codec, concurrency, direction)
        for codec in ("int4", "lossless")
        for concurrency in (1, 8)
        for direction in ("compress", "restore")
    ]
    for row in rows:
        check(row, 256 << 10)
    assert rows[0]["resolved_codec"] == "int4:64"
    assert rows[0]["compression_ratio"] > rows[-1]["compression_ratio"]


def test_a_file(run: Run, server: Server) -> None:
    """Instead of generated data, by either spelling; the codec is that of compression."""
    made = succeed(run("compress", SAMPLE, "-o", "made", "-server", server.target))
    for file in ([SAMPLE], ["-input", SAMPLE]):
        where = ["-server", server.unix_target, "-seconds", "0.1"]
        answer = succeed(run("bench", *file, *where))
        assert answer["input"] == str(SAMPLE)
        assert answer["request_size_bytes"] == SAMPLE.stat().st_size
        assert [row["codec"] for row in answer["measurements"]] == ["auto", "auto"]
        for row in answer["measurements"]:
            check(row, made["original_size_bytes"])
            assert row["compression_ratio"] == made["compression_ratio"]


def test_a_profile(run: Run, bin_dir: Path) -> None:
    """It goes with the codecs that take one; the others are measured without it."""
    with running_server(bin_dir, "--profile-directory", str(GOLDEN)) as server:
        where = ["-server", server.target, "-seconds", "0.1", GOLDEN / "cache.safetensors"]
        codecs = ["-codec", "klt:high,int4"]
        ratios = [
            [row["compression_ratio"] for row in succeed(run("bench", *flags))["measurements"]]
            for flags in ([*where, *codecs, "-profile", "tiny"], [*where, *codecs])
        ]
    assert ratios[0][0] != ratios[1][0]
    assert ratios[0][2] == ratios[1][2]


def test_the_table(run: Run, server: Server) -> None:
    """It has a row for each measurement, whose numbers agree."""
    where = ["-server", server.target, "-codec", "int8", "-concurrency", "2"]
    done = run("bench", *where, *SHORT, "-format", "table")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith(f"{server.target}, version ")
    assert "a generated cache of 26" in lines[0]
    assert "ratios are not those of a model" in lines[0]
    for line, direction in zip(lines[3:5], ("compress", "restore"), strict=True):
        found = COLUMNS.fullmatch(line)
        assert found, line
        assert (found["codec"], found["direction"], found["errors"]) == ("int8", direction, "0")
        speed = float(found["per_second"]) * (256 << 10) / 1e6
        assert float(found["mb"]) == pytest.approx(speed, abs=1)
        assert float(found["p50"]) <= float(found["p99"])
        assert float(found["cpu"]) > 0


def test_a_server_that_is_away(run: Run) -> None:
    """One line says so."""
    address = f"127.0.0.1:{free_port()}"
    done = run("bench", "-server", address, *SHORT)
    refuse(done, f"server {address}: ")
    assert done.stderr.count(b"\n") == 1


def test_a_codec_that_is_refused_does_not_stop_the_others(run: Run, server: Server) -> None:
    """It has an error, and so has the run; where all are refused there is no result."""
    where = ["-server", server.target, *SHORT]
    done = run("bench", *where, "-codec", "bogus int4", "-format", "table")
    assert done.returncode == 1
    text = done.stdout.decode()
    assert re.search(r"(?m)^bogus +failed$", text)
    assert re.search(r'(?m)^bogus: .*"bogus"', text)
    assert len(re.findall(r"(?m)^int4 ", text)) == 2
    refuse(run("bench", *where, "-codec", "bogus"), "bogus")


def test_calls_that_fail_are_counted(bin_dir: Path, run: Run) -> None:
    """By their status, of a server that has no memory for so many at a time."""
    with running_server(bin_dir, "--memory-budget-bytes", "16MiB") as server:
        where = ["-server", server.target, "-codec", "int4", "-concurrency", "16"]
        done = run("bench", *where, "-seconds", "0.2", "-size", "8MiB", "-format", "json")
        page = done.stdout.decode()
        assert done.returncode == 1, done.stderr
        assert '"RESOURCE_EXHAUSTED": ' in page
        assert '"code": "RESOURCE_EXHAUSTED"' in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "bench needs a server: kv-compress bench -server HOST:PORT"),
        (["-server", "x", "-concurrency", "0"], "concurrency: must be numbers from 1 to 256"),
        (["-server", "x", "-size", "1MB"], "size: must be a number of bytes from 65536"),
        (["-server", "x", "-seconds", "0"], "seconds: must be a number from 0.1 to 600"),
        (["-server", "x", "-concurrency", "64", "-size", "1GiB"], "the limit of 8.6 GB: lower"),
        (["-server", "x", "-threads", "2"], "-threads and -server cannot be combined"),
        (["-server", "x", "absent"], "absent: no such file"),
    ],
)
def test_mistakes(run: Run, arguments: list[object], words: str) -> None:
    """Each is named before anything is sent."""
    refuse(run("bench", *arguments), words)


def test_an_interrupt_ends_it(bin_dir: Path, server: Server) -> None:
    """By the signal, as it ends every command."""
    command = [str(bin_dir / "kv-compress"), "bench", "-server", server.target, "-verbose"]
    with subprocess.Popen([*command, "-seconds", "60"], stderr=subprocess.PIPE) as process:
        assert process.stderr
        assert process.stderr.readline().startswith(b"service: version")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT


def test_commands_of_the_documents(server: Server, bin_dir: Path, tmp_path: Path) -> None:
    """They run, for a shorter time; what is shown of them has the heading of the table."""
    (tmp_path / "bin").symlink_to(bin_dir.resolve())
    (tmp_path / "cache.safetensors").symlink_to(SAMPLE)
    lines = claimed("bench")
    assert lines
    for line in lines:
        command = line.replace("127.0.0.1:50051", server.target)
        short = " -seconds 0.1" if "cache.safetensors" in line else " -seconds 0.1 -size 64KiB"
        table = run_line(f"{command} -format table{short}", tmp_path)
        [block] = claimed_blocks("bench")
        assert block.splitlines()[2].split() == table.splitlines()[2].split()
