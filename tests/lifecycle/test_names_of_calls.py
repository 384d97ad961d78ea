# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""x-request-id and traceparent: taken up, in the log, and sent back with the end."""

import contextlib
import json
import re
from typing import Any

import grpc
import pytest
from server_process import ServerProcess, Start

from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Metadata = list[tuple[str, str]]


def trailers(server: ServerProcess, method: str, metadata: Metadata) -> dict[str, str]:
    """Calls a method with metadata; what came back at the end, of a good call or a bad one."""
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        call: Any
        if method == "SelfTest":
            _, call = stub.SelfTest.with_call(
                pb.SelfTestRequest(codec="int4"), metadata=tuple(metadata)
            )
        else:
            call = getattr(stub, method)(iter([]), metadata=tuple(metadata))
            with contextlib.suppress(grpc.RpcError):
                list(call)
        return {key: value for key, value in call.trailing_metadata() if not key.endswith("-bin")}


def log_line(server: ServerProcess, request_id: str) -> dict[str, str]:
    """The members of the line that this call left in the log."""
    server.wait_line(f'"request_id":"{request_id}"')
    [line] = [line for line in server.lines if f'"request_id":"{request_id}"' in line]
    found: dict[str, str] = json.loads(line)
    return found


@pytest.mark.parametrize("method", ["SelfTest", "Compress", "Decompress"])
def test_taken_up_and_sent_back(start: Start, method: str) -> None:
    """By unary calls and streams, good ones and bad ones."""
    server = start("--log-level", "debug")
    sent: Metadata = [("x-request-id", "engine-7.42"), ("traceparent", PARENT)]
    assert trailers(server, method, sent) == dict(sent)
    line = log_line(server, "engine-7.42")
    assert line["traceparent"] == PARENT
    assert line["message"].startswith(f"{method} ended with ")


def test_a_call_without_a_name_gets_one(start: Start) -> None:
    """Another for each, the same in the log and in the trailers."""
    server = start("--log-level", "debug")
    names = [trailers(server, "Compress", [])["x-request-id"] for _ in range(3)]
    assert len(set(names)) == 3
    for name in names:
        assert re.fullmatch("[0-9a-f]{32}", name)
        assert "traceparent" not in log_line(server, name)


@pytest.mark.parametrize(
    "sent",
    [
        [("x-request-id", 'a","level":"error')],
        [("x-request-id", "x" * 65)],
        [("x-request-id", "a b")],
        [("x-request-id", "first-of-two"), ("x-request-id", "second-of-two")],
        [("traceparent", PARENT.upper())],
        [("traceparent", PARENT[:-1])],
        [("traceparent", PARENT + "-x")],
        [("traceparent", PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32))],
    ],
)
def test_what_could_forge_a_line_is_not_taken(start: Start, sent: Metadata) -> None:
    """The call goes on under a name of ours."""
    server = start("--log-level", "debug")
    back = trailers(server, "Compress", sent)
    assert list(back) == ["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", back["x-request-id"])
    log_line(server, back["x-request-id"])
    assert not any(value in line for _, value in sent for line in server.lines)
