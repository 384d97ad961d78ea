# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Bytes that no gRPC client sends: the server answers or hangs up, and serves on."""

import os
import socket
from collections.abc import Iterator

import grpc
import pytest
from health import SERVING
from http2 import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame
from process_memory import peak
from server_process import PATIENCE, ServerProcess, Start

from kvcompress.v1.compression_service_pb2 import CompressOptions, CompressRequest
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

MIB = 1 << 20


def request(*extra: tuple[bytes, bytes], **changed: bytes) -> bytes:
    """A call of GetServerInfo with more headers, split over as many frames as it needs."""
    whole = block("/kvcompress.v1.CompressionService/GetServerInfo", *extra, **changed)
    parts = [whole[begin : begin + 16000] for begin in range(0, len(whole), 16000)]
    frames = [
        frame(
            HEADERS if index == 0 else CONTINUATION,
            (END_STREAM if index == 0 else 0) | (END_HEADERS if part is parts[-1] else 0),
            1,
            part,
        )
        for index, part in enumerate(parts)
    ]
    return PREFACE + frame(SETTINGS, 0, 0, b"") + b"".join(frames)


def say(server: ServerProcess, message: bytes) -> bytes:
    """Sends bytes on a connection of their own, and takes what comes back at first."""
    host, port = server.addresses[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=1) as connection:
        try:
            connection.sendall(message)
            return connection.recv(4096)
        except OSError:
            return b""


# The headers of CVE-2023-1428, each with more headers than a request may have.
MANY = [(b"big%d" % index, b"y" * 15000) for index in range(8)]
HOSTILE = {
    "te": request(*MANY, te=b"x"),
    "scheme": request(*MANY, pseudo_scheme=b"x"),
    "grpclb_client_stats": request((b"grpclb_client_stats", b"x"), *MANY),
    "bad base64": request((b"a-bin", b"!!!")),
    "endless integer": PREFACE + frame(HEADERS, 0, 1, b"\0\x7f" + b"\x80" * 16000),
    "continuation of nothing": PREFACE + frame(CONTINUATION, END_HEADERS, 1, b"x"),
    "frame of 16 MiB": PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "no preface": b"GET / HTTP/1.1\r\n\r\n",
    "cut preface": PREFACE[:10],
    "noise": os.urandom(4096),
    "noise after the preface": PREFACE + os.urandom(4096),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_serves_on(start: Start, name: str) -> None:
    """After each of them, often."""
    server = start()
    for _ in range(5):
        say(server, HOSTILE[name])
    assert server.check() == SERVING


def test_a_message_far_above_the_limit_takes_no_memory(start: Start) -> None:
    """A message is taken whole before anybody looks at its size; the quota stops it first."""
    server = start("--memory-budget-bytes", str(32 * MIB))

    def requests() -> Iterator[CompressRequest]:
        yield CompressRequest(options=CompressOptions(codec="int4"))
        yield CompressRequest(safetensors=bytes(512 * MIB))

    before = peak(server.pid)
    options = [("grpc.max_send_message_length", -1)]
    channel = grpc.insecure_channel(server.addresses[0], options)
    with channel, pytest.raises(grpc.RpcError):
        list(CompressionServiceStub(channel).Compress(requests(), timeout=3 * PATIENCE))
    grown = peak(server.pid) - before
    print(f"{grown / MIB:.0f} MiB for a message of 512 MiB")
    assert grown < 300 * MIB
    assert server.check() == SERVING
