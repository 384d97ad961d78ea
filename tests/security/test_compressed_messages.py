# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Messages that are compressed are refused, whatever the method, and nothing is inflated.

gRPC inflates before it looks at the size: a megabyte of gzip became a gigabyte, also from those
whom --allow grants nothing.
"""

import contextlib
import functools
import gzip
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from authority import Authority
from health import SERVING
from http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    frames_in,
    text,
)
from process_memory import peak
from raw_calls import METHODS, Method, error_of, field
from server_process import PATIENCE, ServerProcess, Start

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
MIB = 1 << 20
MOST = 150 * 10**6


@functools.cache
def bomb() -> bytes:
    """A gibibyte of zeros as gzip has it, a megabyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    zeros = bytes(16 * MIB)
    return b"".join([*(packer.compress(zeros) for _ in range(64)), packer.flush()])


def headers(path: str, encoding: bytes) -> bytes:
    """Of a call whose messages are in an encoding."""
    return block(path, *([(b"grpc-encoding", encoding)] if encoding else []))


def window_of(heard: bytes) -> int:
    """What may be sent on a connection, by what the server has said."""
    return 65_535 + sum(
        int.from_bytes(each.payload, "big")
        for each in frames_in(heard)
        if (each.kind, each.stream) == (WINDOW_UPDATE, 0)
    )


def said(server: ServerProcess, path: str, encoding: bytes, message: bytes) -> bytes:
    """What the server says to a message that is marked as compressed.

    As much of it is sent as the server lets in.
    """
    host, port = server.addresses[0].rsplit(":", 1)
    data = b"\1" + struct.pack(">I", len(message)) + message
    heard, sent = b"", 0
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        heard = connection.recv(1 << 16)
        connection.sendall(frame(HEADERS, END_HEADERS, 1, headers(path, encoding)))
        connection.settimeout(0.05)
        give_up = time.monotonic() + PATIENCE
        while b"grpc-status" not in heard and time.monotonic() < give_up:
            while sent < min(len(data), window_of(heard)):
                part = data[sent : min(sent + 16_384, window_of(heard))]
                sent += len(part)
                last = END_STREAM if sent == len(data) else 0
                connection.sendall(frame(DATA, last, 1, part))
            with contextlib.suppress(TimeoutError):
                heard += connection.recv(1 << 16)
    return heard


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("method", METHODS, ids=lambda each: each.path[-24:])
def test_every_method_refuses(start: Start, method: Method, compression: grpc.Compression) -> None:
    """UNIMPLEMENTED, with the reason in the text; large and small alike."""
    server = start()
    with server.channel() as channel:
        for size in (0, 100, 10_000):
            error = error_of(channel, method, [field(15, bytes(size))] * 3, PATIENCE, compression)
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
            assert "is disabled" in str(error.details())
    assert server.check() == SERVING


def test_bombs(start: Start) -> None:
    """Two gibibytes to each method: the server does not grow, and serves."""
    server = start()

    def send(method: Method) -> grpc.StatusCode:
        with server.channel() as channel:
            error = error_of(
                channel, method, [bytes(64 * MIB)], 3 * PATIENCE, grpc.Compression.Gzip
            )
        code: grpc.StatusCode = error.code()
        return code

    with ThreadPoolExecutor(2) as threads:
        codes = list(threads.map(send, [each for each in METHODS for _ in range(2)]))
    assert set(codes) == {grpc.StatusCode.UNIMPLEMENTED}
    assert peak(server.pid) < MOST
    for method in METHODS:
        with ThreadPoolExecutor(2) as threads:
            for heard in threads.map(
                lambda path: said(server, path, b"gzip", bomb()), [method.path] * 2
            ):
                assert b"grpc-status\x0212" in heard, heard
    assert peak(server.pid) < MOST
    print(f"at most {peak(server.pid) / 1e6:.0f} MB")
    with kvcompress.Client(server.addresses[0], timeout=PATIENCE) as client:
        assert client.compress(SAMPLE).artefact
    assert server.check() == SERVING


@pytest.mark.parametrize("encoding", [b"", b"snappy", b"zstd", b"identity"])
def test_other_encodings_are_not_inflated_either(start: Start, encoding: bytes) -> None:
    """They are read as they are, and are no messages."""
    server = start()
    for method in METHODS:
        heard = said(server, method.path, encoding, gzip.compress(bytes(10_000)))
        assert b"grpc-status" in heard
        assert b"grpc-status\x010" not in heard
    assert peak(server.pid) < MOST
    assert server.check() == SERVING


def test_before_and_after_authorization(start: Start, authority: Authority) -> None:
    """Also to those whom --allow grants nothing."""
    ours = authority.sign("client", names="DNS:somebody.example")
    server = start(
        *authority.sign("server").server_flags,
        *("--tls-client-ca", str(authority.certificate)),
        *("--allow", "Compress=nobody.example"),
    )
    credentials = grpc.ssl_channel_credentials(
        authority.certificate.read_bytes(),
        ours.key.read_bytes(),
        ours.certificate.read_bytes(),
    )
    with grpc.secure_channel(server.addresses[0], credentials) as channel:
        for method in METHODS:
            error = error_of(
                channel, method, [field(15, bytes(MIB))], PATIENCE, grpc.Compression.Gzip
            )
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_answers_name_no_encoding(start: Start) -> None:
    """Clients know beforehand: `identity`."""
    server = start()
    host, port = server.addresses[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, b"")
            + frame(HEADERS, END_HEADERS, 1, block("/grpc.health.v1.Health/Check"))
            + frame(DATA, END_STREAM, 1, bytes(5))
        )
        heard = b""
        while b"grpc-status" not in heard:
            heard += connection.recv(1 << 16)
    assert text(b"grpc-accept-encoding") + text(b"identity") in heard
