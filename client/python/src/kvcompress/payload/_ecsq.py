# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`ecsq`, section 5 of FORMAT.md."""

import math
import re
import struct
from collections.abc import Iterator

import numpy as np

from ._codec import Array, Entry
from ._dtypes import SIZES, bits_dtype, from_bits
from ._ecsq_block import (
    BLOCK_HEADER,
    Block,
    BlockReader,
    Fields,
    read_codes,
    read_rotation,
    read_scales,
    require,
    rounded,
)

_DECIMAL = r"(?:0|[1-9][0-9]*)(?:\.[0-9]{0,3}[1-9])?"
_STEPS = re.compile(rf"({_DECIMAL}),({_DECIMAL})")
MOST_CHANNELS = 4096
"""Of a head, and of a block of several."""

_HEADER = struct.Struct("<BBBBHBBf")


class Ecsq:
    """Entropy-coded scalar quantization."""

    fixed = False
    presets: tuple[str, ...] = ("contract", "high", "max")

    def accepts(self, parameters: str) -> bool:
        """Whether this is a preset or a pair of steps."""
        if parameters in self.presets:
            return True
        steps = _STEPS.fullmatch(parameters)
        return steps is not None and all(0.05 <= float(step) <= 8 for step in steps.groups())

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns the bound, that of the fallback."""
        count = math.prod(shape)
        return 1 + count + 2 * -(-count // 64) if count else 0

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload."""
        count = math.prod(entry.shape)
        itemsize = SIZES[entry.dtype]
        if count == 0:
            require(not payload, entry, "bytes follow the end of the payload")
            bits = b""
        else:
            require(len(payload) > 0, entry, "the payload is incomplete")
            bits = _integers(payload, entry) if payload[0] == 0 else _coded(payload, entry)
        require(len(bits) == count * itemsize, entry, "the payload is incomplete")
        return typed(bits, entry.dtype)


def typed(bits: bytes, dtype: str) -> Array:
    """Elements of the source's type from their bytes."""
    return from_bits(np.frombuffer(bits, bits_dtype(dtype)).copy(), dtype)


def _integers(payload: bytes, entry: Entry) -> bytes:
    """Decodes mode 0."""
    count = math.prod(entry.shape)
    full, rest = divmod(count, 64)
    require(len(payload) == 1 + count + 2 * -(-count // 64), entry, "not the fallback's size")
    groups = np.frombuffer(payload, np.uint8, 66 * full, 1).reshape(full, 66)
    tail = payload[1 + 66 * full :]
    parts = [
        read_codes(groups[:, 2:].tobytes(), entry).reshape(full, 64)
        * read_scales(groups[:, :2].tobytes(), entry)[:, None]
    ]
    if rest:
        parts.append(read_codes(tail[2:], entry) * read_scales(tail[:2], entry))
    with np.errstate(over="ignore"):
        return b"".join(rounded(part.ravel(), entry.dtype) for part in parts)


def _blocks(heads: int, tokens: int, channels: int) -> Iterator[Block]:
    """Cuts a tensor into blocks."""
    most = min(1024, 2**18 // channels)
    if tokens <= most:
        for _, size in cut(heads, head_parts(heads, tokens, channels)):
            yield Block(size, 0, tokens, channels)
        return
    for _ in range(heads):
        for first, size in cut(tokens, -(-tokens // most)):
            yield Block(1, first, size, channels)


def head_parts(heads: int, tokens: int, channels: int) -> int:
    """How many blocks there are where one holds heads with all their tokens."""
    return -(-heads // min(2**18 // (tokens * channels), MOST_CHANNELS // channels))


def cut(things: int, parts: int) -> Iterator[tuple[int, int]]:
    """Cuts into parts as even as can be: first and size of each."""
    size, longer = divmod(things, parts)
    return ((size * i + min(i, longer), size + (i < longer)) for i in range(parts))


def matrix(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns heads, tokens and channels of a tensor of any shape."""
    tokens, channels = shape[-2:] if len(shape) > 1 else (math.prod(shape), 1)
    return math.prod(shape[:-2]), tokens, channels


def read_fields(payload: bytes, entry: Entry) -> tuple[Fields, int]:
    """Reads the header of mode 1, and where its blocks begin."""
    _, _, channels = matrix(entry.shape)
    require(channels <= MOST_CHANNELS, entry, "too many channels")
    require(len(payload) >= _HEADER.size, entry, "the payload is incomplete")
    mode, flags, sinks, sink_shift, recent, recent_shift, _, step = _HEADER.unpack_from(payload)
    rotation, position = read_rotation(payload, _HEADER.size, channels, entry)
    good = mode == 1 and flags & 3 != 3
    good = good and max(sink_shift, recent_shift) <= 4 and 2.0**-100 <= step <= 2.0**100
    good = good and int(np.float32(step).view(np.uint32)) & 0x1FFF == 0
    require(good, entry, "the header of the payload breaks a rule")
    fields = Fields(flags, sinks, sink_shift, recent, recent_shift, np.float32(step), rotation)
    return fields, position


def _coded(payload: bytes, entry: Entry) -> bytes:
    """Decodes mode 1."""
    heads, tokens, channels = matrix(entry.shape)
    fields, position = read_fields(payload, entry)
    parts = []
    for block in _blocks(heads, tokens, channels):
        require(len(payload) >= position + BLOCK_HEADER.size, entry, "the payload is incomplete")
        (size,) = struct.unpack_from("<I", payload, position)
        data = payload[position : position + size]
        require(size > BLOCK_HEADER.size and len(data) == size, entry, "a block breaks a rule")
        parts.append(BlockReader(fields, block, tokens, data, entry).read())
        position += size
    require(position == len(payload), entry, "bytes follow the end of the payload")
    return b"".join(parts)
