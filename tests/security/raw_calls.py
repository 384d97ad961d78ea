# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of every method of every service, with messages as bytes."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import grpc

from kvcompress.v1 import compression_service_pb2

SERVICE = "/kvcompress.v1.CompressionService/"
MIB = 1 << 20


class Method(NamedTuple):
    """A method, and whether its requests and its responses are streams."""

    path: str
    requests: bool
    responses: bool


_OURS = [
    Method(f"{SERVICE}{method.name}", method.client_streaming, method.server_streaming)
    for method in compression_service_pb2.DESCRIPTOR.services_by_name["CompressionService"].methods
]
STREAMS = [method for method in _OURS if method.requests]
FILES = [method for method in _OURS if method.responses and not method.requests]
REFLECTION = [
    Method(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo", True, True)
    for version in ("v1", "v1alpha")
]
SMALL = [
    *(method for method in _OURS if not method.requests and not method.responses),
    Method("/grpc.health.v1.Health/Check", False, False),
    Method("/grpc.health.v1.Health/Watch", False, True),
    *REFLECTION,
]
METHODS = [*STREAMS, *FILES, *SMALL]


def call(
    channel: grpc.Channel,
    method: Method,
    messages: Iterable[bytes],
    timeout: float,
    compression: grpc.Compression | None = None,
) -> list[bytes]:
    """The responses of a call that succeeds."""
    first = next(iter(messages)) if not method.requests else b""
    if method.requests and method.responses:
        many: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(method.path)
        return list(many(iter(messages), timeout=timeout, compression=compression))
    if method.requests:
        one: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(method.path)
        return [one(iter(messages), timeout=timeout, compression=compression)]
    if method.responses:
        several: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method.path)
        return list(several(first, timeout=timeout, compression=compression))
    single: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method.path)
    return [single(first, timeout=timeout, compression=compression)]


def error_of(
    channel: grpc.Channel,
    method: Method,
    messages: Iterable[bytes],
    timeout: float,
    compression: grpc.Compression | None = None,
) -> grpc.RpcError:
    """The error of a call that fails."""
    try:
        call(channel, method, messages, timeout, compression)
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"{method.path} did not fail")


def varint(value: int) -> bytes:
    """A number of protobuf."""
    out = b""
    while value >= 128:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, or a message, of protobuf."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def filled(piece: bytes, size: int = 8 * MIB - 64) -> bytes:
    """As much of `piece` as there is space for."""
    return piece * (size // len(piece))


def numbered(number: int, inner: int, size: int = 8 * MIB - 64) -> bytes:
    """Messages in field `number` whose field `inner` is another number each."""

    def pieces() -> Iterator[bytes]:
        for index in range(size // 14):
            yield field(number, field(inner, b"%07d" % index) + b"\x10\x01")

    return b"".join(pieces())
