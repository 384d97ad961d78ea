# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Servers that mean harm: what they make a client keep, wait for, or print."""

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

import kvcompress
from fake import BlockingAio, artefact, begin, canned, compressed, fake_server, safetensors
from kvcompress._sinks import MemorySink
from kvcompress.profiles import ProfileInfo, format_report
from kvcompress.profiles._report import Preset
from kvcompress.v1.compression_service_pb2 import SelfTestRequest
from kvcompress.v1.server_info_pb2 import GetServerInfoRequest

MakeClient = Callable[..., kvcompress.Client]
# Control characters of both sets, marks and overrides of direction, separators of lines.
HARMFUL = "\x00\x07\x1b[2J\x7f\x80\x9b\x9f\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"


@pytest.fixture(params=[kvcompress.Client, BlockingAio])
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    """The class of either client."""
    kind: MakeClient = request.param
    return kind


def test_memory_follows_what_came() -> None:
    """Not what was announced to come before it."""
    tracemalloc.start()
    sink = MemorySink()
    sink.write(100_000_000, b"x")
    sink.write(100_000_001, b"y")
    assert sink.beginning() == b""
    sink.write(0, b"head")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert sink.data == b"headxy"


def test_header_that_no_file_has_room_for(make_client: MakeClient) -> None:
    size = 1_200_000_000
    answer = canned([begin(size), artefact(size, b"x"), compressed(size + 1)])
    with (
        fake_server(answer) as target,
        make_client(target, timeout=20) as client,
        pytest.raises(kvcompress.DataLossError, match="above 100000008") as caught,
    ):
        client.compress(b"")
    assert caught.value.reason == "BAD_STREAM"


@pytest.mark.parametrize(
    ("method", "first", "rest"),
    [
        ("compress", [begin(0)], artefact(0, b"")),
        ("decompress", [], safetensors(0, b"")),
    ],
)
def test_empty_chunks_without_end(
    make_client: MakeClient,
    method: str,
    first: list[Any],
    rest: Any,  # noqa: ANN401
) -> None:
    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        yield from first
        yield from itertools.repeat(rest)

    with fake_server(answer) as target, make_client(target, timeout=50) as client:
        with pytest.raises(kvcompress.DataLossError, match="empty chunks") as caught:
            getattr(client, method)(b"")
        assert caught.value.reason == "BAD_STREAM"


@contextmanager
def delaying_server(seen: list[str]) -> Iterator[str]:
    """Serves calls of one request, to which it says that they should be tried again in 24 days."""

    def answer(request: Message, context: grpc.ServicerContext) -> Message:
        seen.append(type(request).__name__)
        context.set_trailing_metadata((("grpc-retry-pushback-ms", str(2**31 - 1)),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "later")

    kinds: dict[str, type[Message]] = {
        "GetServerInfo": GetServerInfoRequest,
        "SelfTest": SelfTestRequest,
    }
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(answer, kind.FromString)
        for name, kind in kinds.items()
    }
    handler = grpc.method_handlers_generic_handler("kvcompress.v1.CompressionService", handlers)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_delay_of_days(make_client: MakeClient) -> None:
    """How long to wait is the client's to say: without a timeout, and with one."""
    seen: list[str] = []
    with delaying_server(seen) as target, make_client(target, attempts=3) as client:
        for timeout in (None, 20):
            for call in (client.server_info, client.self_test):
                with pytest.raises(kvcompress.UnavailableError, match="later"):
                    call(timeout=timeout)
    assert len(seen) == 12


def test_nothing_that_is_printed_acts_on_a_terminal(make_client: MakeClient) -> None:
    """Errors, warnings, reports on one line and in HTML, and those on profiles."""

    def refuse(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, HARMFUL)
        yield from ()

    with (
        fake_server(refuse) as target,
        make_client(target, timeout=20) as client,
        pytest.raises(kvcompress.InvalidArgumentError) as caught,
    ):
        client.compress(b"")
    trailer = compressed(8)
    trailer.trailer.codec = HARMFUL
    trailer.trailer.warnings.add(code="NO_ROLES", message=HARMFUL, tensor=HARMFUL)
    tensor = trailer.trailer.tensors.add(name=HARMFUL, codec=HARMFUL)
    tensor.verdict.missed.add(metric=HARMFUL, bound="min_snr_db", limit=1)
    answer = canned([begin(4), artefact(4, b"body"), artefact(0, b"head"), trailer])
    with (
        fake_server(answer) as target,
        make_client(target, timeout=20) as client,
        pytest.warns(kvcompress.CompressionWarning) as warned,
    ):
        report = client.compress(b"").report
    printed = [
        str(caught.value),
        repr(caught.value),
        str(warned[0].message),
        repr(report),
        repr(report.tensors[0]),
        str(report.tensors[0].verdict.missed[0]),
        report._repr_html_(),
    ]
    info = ProfileInfo("sha256:0", HARMFUL, 0, HARMFUL, (Preset(HARMFUL, 1, None),), 0, ())
    printed += format_report(info).split("\n")
    for text in printed:
        assert not set(HARMFUL.replace("[2J", "")) & set(text), ascii(text)
    assert "\\x9b" in str(caught.value)
    assert "\\u202e" in str(caught.value)
