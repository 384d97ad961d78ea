# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks of LZ4 and frames of Zstandard, piece by piece, so that any one may be wrong."""

import struct
from collections.abc import Iterable

SIZE = 400
MAGIC = b"\x28\xb5\x2f\xfd"
# Of weights 1: the symbols 0 and 1, with codes of one bit.
TREE = b"\x80\x10"
# Tables of one symbol each, of literals, offsets and matches.
RLE_MODES = 0x54


def header(size: int = SIZE) -> bytes:
    """The header of a frame, but for its magic number."""
    field = (size >= 256) + (size >= 65792)
    number = size - 256 if field == 1 else size
    return bytes([field << 6 | 0x20]) + number.to_bytes(1 << field, "little")


def block(content: bytes, kind: int = 2, size: int | None = None, *, last: bool = False) -> bytes:
    """A block with its header; a wrong size may be given."""
    length = len(content) if size is None else size
    return (length << 3 | kind << 1 | last).to_bytes(3, "little") + content


def zeros(count: int, *, last: bool = False) -> bytes:
    """A block of type RLE."""
    return block(b"\0", 1, count, last=last)


def frame(*blocks: bytes, size: int = SIZE) -> bytes:
    """A frame of these blocks."""
    return MAGIC + header(size) + b"".join(blocks)


def bits(*fields: tuple[int, int], end: bool = True) -> bytes:
    """A bitstream of (value, width), in the order in which they are read."""
    number = 1 if end else 0
    width = 1
    for value, count in fields:
        number = number << count | value
        width += count
    return number.to_bytes(-(-width // 8), "little")


def raw(literals: bytes) -> bytes:
    """A section of literals as they are, fewer than 32."""
    return bytes([len(literals) << 3]) + literals


def huffman(
    streams: bytes, literals: int, form: int = 0, kind: int = 2, tree: bytes = TREE
) -> bytes:
    """A section of compressed literals, fewer than 1,024; `form` 1 has four streams."""
    stored = len(tree) + len(streams)
    number = kind | form << 2 | literals << 4 | stored << 14
    return number.to_bytes(3, "little") + tree + streams


def four(*streams: bytes) -> bytes:
    """Four streams with their jump table."""
    return struct.pack("<3H", *(len(each) for each in streams[:3])) + b"".join(streams)


def sequences(
    stream: bytes,
    *,
    count: bytes = b"\1",
    modes: int = RLE_MODES,
    tables: Iterable[int] = (1, 2, 0),
) -> bytes:
    """A section of sequences: at first of 1 literal, an offset of code 2, a match of 3."""
    return count + bytes([modes, *tables]) + stream


def lz4(literals: bytes, distance: int | None = None, length: int = 4) -> bytes:
    """A sequence of LZ4; without a distance the last."""
    high, low = min(len(literals), 15), 0 if distance is None else min(length - 4, 15)
    out = bytes([high << 4 | low])
    if high == 15:
        out += _rest(len(literals) - 15)
    out += literals
    if distance is not None:
        out += struct.pack("<H", distance)
        out += _rest(length - 19) if low == 15 else b""
    return out


def _rest(length: int) -> bytes:
    return b"\xff" * (length // 255) + bytes([length % 255])
