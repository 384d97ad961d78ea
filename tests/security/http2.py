# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand, for what no client of gRPC sends."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, WINDOW_UPDATE, CONTINUATION = 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


class Frame(NamedTuple):
    """What one says."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame as it is on the wire."""
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def frames_in(data: bytes) -> Iterator[Frame]:
    """The frames that have come whole."""
    while len(data) >= 9 and len(data) >= 9 + (size := int.from_bytes(data[:3], "big")):
        yield Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size])
        data = data[9 + size :]


def text(value: bytes) -> bytes:
    """A string of HPACK, without Huffman coding."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    size, rest = bytes([127]), len(value) - 127
    while rest >= 128:
        size, rest = size + bytes([rest % 128 + 128]), rest // 128
    return size + bytes([rest]) + value


def items(path: str, *extra: tuple[bytes, bytes], **changed: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a call of this method; `pseudo_scheme` changes `:scheme`."""
    headers = {b":method": b"POST", b":scheme": b"http", b":authority": b"a"}
    headers |= {b":path": path.encode(), b"te": b"trailers"}
    headers |= {key.encode().replace(b"pseudo_", b":"): value for key, value in changed.items()}
    return [*headers.items(), (b"content-type", b"application/grpc"), *extra]


def block(path: str, *extra: tuple[bytes, bytes], **changed: bytes) -> bytes:
    """The same as they are on the wire."""
    return b"".join(
        b"\0" + text(name) + text(value) for name, value in items(path, *extra, **changed)
    )


def indexed(path: str) -> tuple[bytes, bytes]:
    """The same of a first call, which puts them into the table, and of all others: a byte each."""
    headers = items(path)
    first = b"".join(b"\x40" + text(name) + text(value) for name, value in headers)
    newest = 62
    return first, bytes(0x80 + newest + i for i in reversed(range(len(headers))))
