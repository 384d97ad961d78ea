# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m kvcompress` beside kv-compress: the same flags, JSON, messages and exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kv_compress import MISTAKES, words_of

import kvcompress
from kvcompress.cli.commands import main
from oracle.fixtures import SAMPLE
from oracle.server import Server
from oracle.source import tensor, write

Both = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, and the server in the environment; signals are put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVCOMPRESS_SERVER", server.unix_target)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def comparable(output: bytes) -> dict[str, Any]:
    """The JSON of a run, without what differs from run to run."""
    answer: dict[str, Any] = json.loads(output)
    answer.pop("processing_time_ms", None)
    return answer


@pytest.fixture
def both(bin_dir: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Both:
    """Runs both programs with the same arguments; gives what they agree on."""

    def run(*arguments: object, error: bool = False) -> tuple[int, dict[str, Any]]:
        words = [str(argument) for argument in arguments]
        done = subprocess.run(
            [str(bin_dir / "kv-compress"), *words], capture_output=True, timeout=60
        )
        capfdbinary.readouterr()
        status = main(words)
        output, errors = capfdbinary.readouterr()
        assert (status, errors) == (done.returncode, done.stderr)
        assert list(json.loads(output)) == list(json.loads(done.stdout))
        assert comparable(output) == comparable(done.stdout)
        return status, comparable(output)

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["-metrics-only"],
        ["-metrics-only", "-verbose"],
        ["-metrics-only", "--group-size=32", "-verbose=false"],
        ["-output", "out", "-codec", "int8", "-label", "model=m", "-label", "a=b=c"],
        ["-output", "out", "-min-snr-db", "1"],
        ["-output", "out", "-codec", "lossless", "-verbose"],
        ["-metrics-only", "-sparsity", "0.5", "-last-stage", "zstd"],
        ["-metrics-only", "-codec", "int4-kivi", "-rope-theta", "100000"],
        [
            "-output",
            "out",
            "-thresholds",
            "max_rmse=9,min_snr_db=1",
            "-key-thresholds=max_error=99",
        ],
    ],
    ids=words_of,
)
def test_compression(both: Both, arguments: list[str]) -> None:
    status, answer = both("-input", SAMPLE, *arguments)
    assert (status, answer["tensor_count"]) == (0, 60)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-metrics-only", "-min-snr-db", "22.125"],
        ["-output", "out", "-thresholds", "max_rmse=1e-7", "-value-thresholds", "max_rmse=0.01"],
        ["-output", "out", "-key-thresholds", "min_centred_snr_db=60,min_token_snr_db_p1=70"],
        ["-metrics-only", "-thresholds", "max_error=0.001,min_cosine_similarity=0.99999"],
    ],
    ids=words_of,
)
def test_gate_that_does_not_hold(both: Both, tmp_path: Path, arguments: list[str]) -> None:
    """The same violations, and no output."""
    status, answer = both("-input", SAMPLE, *arguments)
    assert (status, answer["quality_passed"]) == (2, False)
    assert list(tmp_path.iterdir()) == []


def test_gate_on_what_a_shape_has_not(both: Both, tmp_path: Path) -> None:
    """It does not hold: nobody knows."""
    shape = (2, 8, 64)
    values = np.random.default_rng(8).standard_normal(shape)
    file = write([tensor(name, "F32", values, shape) for name in ("layer_0_key", "layer_0_value")])
    (tmp_path / "flat.safetensors").write_bytes(file)
    bounds = ("-thresholds", "min_centred_snr_db=-300,min_token_snr_db_p1=-300")
    status, answer = both("-input", "flat.safetensors", "-metrics-only", *bounds)
    assert (status, answer["quality_passed"]) == (2, False)
    unknown = [each for each in answer["violations"] if "not known for its shape" in each]
    assert len(unknown) == 3
    status, answer = both("-input", "flat.safetensors", "-metrics-only", "-codec", "auto", *bounds)
    assert (status, answer["quality_passed"]) == (0, True)


def test_decompression(both: Both, tmp_path: Path) -> None:
    """Everything, and a part of it; the files are the same too."""
    both("-input", SAMPLE, "-output", "artefact", "-label", "model=m")
    both("-info", "artefact")
    both("-verify", "artefact", "-label", "model=m")
    for arguments in (
        [],
        ["-tokens", "3:7"],
        ["-tensors", "*_key", "-tensors=layer_0_value", "-verbose"],
    ):
        both("-decompress", "-input", "artefact", "-output", "out", *arguments)
        ours = (tmp_path / "out").read_bytes()
        (tmp_path / "out").unlink()
        assert main(["-decompress", "-input", "artefact", "-output", "out", *arguments]) == 0
        assert (tmp_path / "out").read_bytes() == ours


@pytest.mark.parametrize("where", [200, -5, None, "label"])
def test_damage(both: Both, tmp_path: Path, where: int | str | None) -> None:
    """What is found of it is the same, in the header, the payload, the length, the labels."""
    assert main(["-input", str(SAMPLE), "-output", "artefact", "-label", "model=m"]) == 0
    data = bytearray((tmp_path / "artefact").read_bytes())
    if isinstance(where, int):
        data[where] ^= 4
    elif where is None:
        del data[-1]
    (tmp_path / "artefact").write_bytes(data)
    label = "model=other" if where == "label" else "model=m"
    status, answer = both("-verify", "artefact", "-label", label)
    assert (status, answer["verified"]) == (1, False)
    assert (answer["reason"] == "IDENTITY_MISMATCH") is (where == "label")


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=words_of)
def test_mistakes(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, arguments: list[object], words: str
) -> None:
    """The messages of kv-compress for the same mistakes."""
    status = main([str(argument) for argument in arguments])
    output, errors = capfdbinary.readouterr()
    assert (status, output) == (1, b"")
    assert re.match(f"Error: .*(?:{words})", errors.decode(), re.DOTALL), errors
    assert list(tmp_path.iterdir()) == []


def run_module(
    *arguments: str, stdin: bytes = b"", **environment: str
) -> "subprocess.CompletedProcess[bytes]":
    """Runs `python -m kvcompress`."""
    variables = {k: v for k, v in os.environ.items() if k != "KVCOMPRESS_SERVER"}
    variables["PYTHONPATH"] = str(Path(kvcompress.__file__).parents[1])
    command = [sys.executable, "-m", "kvcompress", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=60, env={**variables, **environment}
    )


def test_module_with_a_server_of_its_own(bin_dir: Path, tmp_path: Path) -> None:
    """From standard input to standard output; the JSON makes way for the data."""
    data = SAMPLE.read_bytes()
    done = run_module("-input", "-", "-output", "-", stdin=data, KVCOMPRESS_BIN_DIR=str(bin_dir))
    assert done.returncode == 0, done.stderr.decode()
    assert comparable(done.stderr)["compressed_size_bytes"] == len(done.stdout)
    assert kvcompress.payload.read(done.stdout).keys() == kvcompress.load_arrays(data)[0].keys()
    assert list(tmp_path.iterdir()) == []


def test_module_without_any_server() -> None:
    done = run_module(
        "-input", str(SAMPLE), "-metrics-only", KVCOMPRESS_BIN_DIR="/nowhere", PATH=""
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"Error: no kv-compressd to start"), done.stderr


def test_help_and_version() -> None:
    for flag in ("-help", "--version"):
        done = run_module(flag)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"kvcompress" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_nothing(tmp_path: Path, server: Server, number: int) -> None:
    """An output that is not complete is not there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kvcompress", "-input", "-", "-output", "out"],
        env={**os.environ, "PYTHONPATH": str(Path(kvcompress.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        process.stdin.write(SAMPLE.read_bytes()[:2000])
        process.stdin.flush()
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert list(tmp_path.iterdir()) == []
