# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How both clients reach a server: options, TLS, retries, a server of their own; progress."""

import math
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import kvcompress
from fake import BlockingAio, artefact, begin, canned, compressed, fake_server, restored
from kvcompress.options import CodecChoice, codec_string
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import quality_pb2

GOOD = [begin(4), artefact(4, b"body"), artefact(0, b"head"), compressed(8)]
# Of a file without tensors.
BEGINNING = b"\x02" + bytes(7) + b"{}"
MakeClient = Callable[..., kvcompress.Client]


@pytest.fixture(params=[kvcompress.Client, BlockingAio])
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    """The class of either client."""
    kind: MakeClient = request.param
    return kind


def test_every_option_is_sent(make_client: MakeClient) -> None:
    seen = []

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        seen.append(next(requests).options)
        yield from GOOD

    with fake_server(answer) as target, make_client(target, timeout=10) as client:
        client.compress(
            b"",
            codec={"name": "c", "preset": "p", "group_size": 32, "byte_compressor": "zstd"},
            thresholds=kvcompress.Thresholds(max_rmse=0.5),
            key_thresholds=kvcompress.Thresholds(min_centred_snr_db=1),
            value_thresholds=kvcompress.Thresholds(min_token_snr_db_p1=2),
            roles={"k*": "key", "v*": "value"},
            rope_theta=0,
            layout="thd",
            effort="best",
            block_tokens=64,
            metrics="basic",
            attention={3: [0.5, -1.0]},
            labels={"a": "b"},
            report_tensors=False,
            profile="m",
            require=False,
        )
    assert seen == [
        service_pb2.CompressOptions(
            codec="c:p,group_size=32+zstd",
            thresholds=quality_pb2.QualityThresholds(max_rmse=0.5),
            key_thresholds=quality_pb2.QualityThresholds(min_centred_snr_db=1),
            value_thresholds=quality_pb2.QualityThresholds(min_token_snr_db_p1=2),
            key_patterns=["k*"],
            value_patterns=["v*"],
            rope_theta=0,
            layout="thd",
            effort=service_pb2.EFFORT_BEST,
            block_tokens=64,
            metrics=service_pb2.METRICS_LEVEL_BASIC,
            attention=[service_pb2.LayerAttention(layer=3, octaves=[0.5, -1.0])],
            labels={"a": "b"},
            profile="m",
        )
    ]
    fields = service_pb2.CompressOptions.DESCRIPTOR.fields
    unset = {field.name for field in fields} - {field.name for field, _ in seen[0].ListFields()}
    # `rope` comes from model_config, which is not taken together with rope_theta.
    assert unset == {"report_tensors", "reconstruct", "rope"}


def test_every_option_of_decompress_is_sent(make_client: MakeClient) -> None:
    seen = []

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        seen.append(next(requests).options)
        yield restored(0)

    with fake_server(answer) as target, make_client(target, timeout=10) as client:
        client.decompress(
            b"",
            tensors=["*_key"],
            tokens=(0, 5),
            order="layers",
            expected_labels={"a": "b"},
            expected_payload_digest="d",
            verify_only=True,
        )
    options = seen[0]
    assert len(options.ListFields()) == len(options.DESCRIPTOR.fields)
    assert (options.tensors, options.tokens.end, options.expected_payload_digest) == (
        ["*_key"],
        5,
        "d",
    )


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("any: text+", "any: text+"),
        ({"name": "int4"}, "int4"),
        ({"name": "klt", "preset": "ultra"}, "klt:ultra"),
        ({"name": "ecsq", "preset": "0.5,0.5"}, "ecsq:0.5,0.5"),
        (
            {"sparsity": 0.25, "byte_compressor": "zstd", "name": "sparse", "group_size": 32},
            "sparse:sparsity=0.25,group_size=32+zstd",
        ),
        ({"name": "sparse", "sparsity": 1.0, "preset": ""}, "sparse:sparsity=1"),
        ({"name": "c", "exact": True, "fast": False, "most": None}, "c:exact=true,fast=false"),
        ({"name": "c", "share": 0.1 + 0.2, "byte_compressor": ""}, "c:share=0.3"),
    ],
)
def test_mappings_are_codec_strings(codec: CodecChoice, text: str) -> None:
    assert codec_string(codec) == text


def test_options_that_there_are_not(make_client: MakeClient) -> None:
    with make_client("127.0.0.1:1") as client:
        with pytest.raises(TypeError, match="group_sise"):
            client.compress(b"", group_sise=32)  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="needs a name"):
            client.measure(b"", codec={"group_size": 32})
        with pytest.raises(TypeError, match="a string or a mapping, not int"):
            client.measure(b"", codec=4)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="sequence of patterns"):
            client.decompress(b"", tensors="*_key")


class Flaky:
    """Answers UNAVAILABLE a few times, before or after a first response."""

    def __init__(self, failures: int, code: grpc.StatusCode, *, late: bool = False) -> None:
        """Takes how often to fail, how, and whether after a response."""
        self.calls, self.failures, self.code, self.late = 0, failures, code, late

    def __call__(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Answers a call."""
        self.calls += 1
        if self.late:
            yield GOOD[0]
        if self.calls <= self.failures:
            context.abort(self.code, "not now")
        yield from canned(GOOD)(requests, context)


@pytest.mark.parametrize(
    ("answer", "attempts", "calls"),
    [
        (Flaky(2, grpc.StatusCode.UNAVAILABLE), 4, 3),
        (Flaky(3, grpc.StatusCode.UNAVAILABLE), 2, -2),
        (Flaky(1, grpc.StatusCode.UNAVAILABLE), 1, -1),
        (Flaky(1, grpc.StatusCode.RESOURCE_EXHAUSTED), 4, -1),
        (Flaky(1, grpc.StatusCode.UNAVAILABLE, late=True), 4, -1),
    ],
    ids=["recovers", "gives_up", "once", "other_code", "after_a_response"],
)
def test_calls_are_tried_again(
    make_client: MakeClient, answer: Flaky, attempts: int, calls: int
) -> None:
    """Only while the answer is UNAVAILABLE and nothing has come back."""
    answer.calls = 0
    with (
        fake_server(answer) as target,
        make_client(target, timeout=20, attempts=attempts) as client,
    ):
        if calls > 0:
            assert client.compress(b"").artefact == b"headbody"
        else:
            with pytest.raises(kvcompress.KVCompressError):
                client.compress(b"")
    assert answer.calls == abs(calls)


def test_all_of_a_large_input_is_sent_again(make_client: MakeClient, tmp_path: Path) -> None:
    """However much of it had gone; and so for the other calls."""
    path = tmp_path / "in"
    path.write_bytes(BEGINNING.ljust(5 << 20, b"\0"))
    answer = Flaky(1, grpc.StatusCode.UNAVAILABLE)
    with fake_server(answer) as target, make_client(target, timeout=20) as client:
        assert client.compress(path, tmp_path / "out").path == tmp_path / "out"
    assert answer.calls == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in", "out"]


def test_a_pipe_is_sent_once(make_client: MakeClient, tmp_path: Path) -> None:
    """What was read from it is gone."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(bytes(1000),))
    writer.start()
    answer = Flaky(1, grpc.StatusCode.UNAVAILABLE)
    with (
        fake_server(answer) as target,
        make_client(target, timeout=20) as client,
        pytest.raises(kvcompress.UnavailableError),
    ):
        client.compress(path)
    writer.join()
    assert answer.calls == 1


@pytest.mark.parametrize("timeout", [math.inf, 1e10, 1e300, np.float32(30), 30])
def test_timeouts_without_a_limit_and_long_ones(make_client: MakeClient, timeout: float) -> None:
    """None of them is so long that it is over at once."""
    with fake_server(canned(GOOD)) as target:
        with make_client(target, timeout=timeout) as client:
            assert client.compress(b"").artefact == b"headbody"
        with make_client(target, timeout=0) as client:
            assert client.compress(b"", timeout=timeout).artefact == b"headbody"


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(math.nan, ValueError), (-1, ValueError), (-math.inf, ValueError), ("5", TypeError)],
)
def test_timeouts_that_there_are_not(
    make_client: MakeClient, timeout: float, error: type[Exception]
) -> None:
    with pytest.raises(error, match="timeout is"):
        make_client("127.0.0.1:1", timeout=timeout)
    with make_client("127.0.0.1:1") as client:
        for call in (client.compress, client.decompress, client.measure):
            with pytest.raises(error, match="timeout is"):
                call(b"", timeout=timeout)
        for ask in (client.server_info, client.self_test):
            with pytest.raises(error, match="timeout is"):
                ask(timeout=timeout)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and a key and a certificate of a server and a client."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=x")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
    return folder


def test_tls(make_client: MakeClient, pki: Path) -> None:
    """Certificates as bytes or as paths; a server with a certificate of others is refused."""
    pair = ((pki / "server.key").read_bytes(), (pki / "server.pem").read_bytes())
    with fake_server(canned(GOOD), grpc.ssl_server_credentials([pair])) as target:
        for roots in (pki / "ca.pem", (pki / "ca.pem").read_bytes()):
            with make_client(target, timeout=10, root_certificates=roots) as client:
                assert client.compress(b"").artefact == b"headbody"
        for arguments in ({}, {"tls": True}):
            with (
                make_client(target, timeout=10, attempts=1, **arguments) as client,
                pytest.raises(kvcompress.UnavailableError),
            ):
                client.compress(b"")


def test_mutual_tls(make_client: MakeClient, pki: Path) -> None:
    """A server that asks who calls."""
    pair = ((pki / "server.key").read_bytes(), (pki / "server.pem").read_bytes())
    roots = (pki / "ca.pem").read_bytes()
    credentials = grpc.ssl_server_credentials([pair], roots, require_client_auth=True)
    with fake_server(canned(GOOD), credentials) as target:
        with make_client(
            target,
            timeout=10,
            root_certificates=roots,
            private_key=pki / "client.key",
            certificate_chain=pki / "client.pem",
        ) as client:
            assert client.compress(b"").artefact == b"headbody"
        with (
            make_client(target, timeout=10, root_certificates=roots, attempts=1) as client,
            pytest.raises(kvcompress.UnavailableError),
        ):
            client.compress(b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"private_key": b"k"}, "go together"),
        ({"root_certificates": b"c", "tls": False}, "tls is False"),
        ({"attempts": 6}, "1 to 5"),
        ({"attempts": 0}, "1 to 5"),
        ({"target": None, "tls": True}, "target"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kvcompress.Client(**{"target": "127.0.0.1:1", **arguments})


def test_options_of_the_caller_win() -> None:
    options = [("grpc.max_receive_message_length", 10)]
    with (
        fake_server(canned(GOOD)) as target,
        kvcompress.Client(target, options=options, timeout=10) as client,
        pytest.raises(kvcompress.ResourceExhaustedError),
    ):
        client.compress(b"")


def test_progress(
    make_client: MakeClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The bytes of the input are counted; tqdm draws them."""
    path = tmp_path / "in"
    path.write_bytes(BEGINNING.ljust(3 << 20, b"\0"))
    tensors = {"x": np.zeros((1000, 1000), np.float32)}
    with fake_server(canned(GOOD)) as target, make_client(target, timeout=10) as client:
        for source, size in ((path, 3 << 20), (tensors, 4_000_000)):
            seen: list[int] = []
            client.compress(source, progress=seen.append)
            assert (len(seen) > 2, sum(seen)) == (True, size)
        client.compress(path, progress=True)
    assert "3.15M/3.15M" in capsys.readouterr().err


def test_no_server_to_start(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="give a target, or put it on the PATH"):
        make_client()


def test_server_that_does_not_start(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it printed is in the error, and its folder is gone."""
    binary = tmp_path / "kv-compressd"
    binary.write_text("#!/bin/sh\necho it cannot be >&2\nexit 7\n")
    binary.chmod(0o755)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with pytest.raises(OSError, match="ended with status 7: it cannot be"):
        make_client()
    assert list(temporary.iterdir()) == []
