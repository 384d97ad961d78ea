# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The encoder of `lossless`, written from FORMAT.md alone: one symbol after the other."""

import struct

import numpy as np
import numpy.typing as npt

from oracle.source import ITEM_SIZE, Tensor

BLOCK = 65536
LANES = 16


def encode_tensor(source: Tensor) -> bytes:
    """Returns the payload of a tensor."""
    size = ITEM_SIZE[source.dtype]
    blocks = [
        encode_block(source.data[start : start + BLOCK * size], source.dtype)
        for start in range(0, len(source.data), BLOCK * size)
    ]
    return b"".join(blocks)


def largest(source: Tensor) -> int:
    """Returns the size bound of a tensor's payload."""
    size = ITEM_SIZE[source.dtype]
    count = len(source.data) // size
    return size * count + 4 * size * -(-count // BLOCK)


def encode_block(data: bytes, dtype: str) -> bytes:
    """Encodes a block of elements of a type."""
    size = ITEM_SIZE[dtype]
    count = len(data) // size
    encoded = [encode_plane(plane) for plane in planes(data, dtype)]
    block = struct.pack(f"<{size}I", *map(len, encoded)) + b"".join(encoded)
    return block.ljust(-(-count // 16) if size == 2 else -(-count * size // 64), b"\0")


def planes(data: bytes, dtype: str) -> list[bytes]:
    """Cuts elements into their byte planes."""
    size = ITEM_SIZE[dtype]
    rows = np.frombuffer(data, np.uint8).reshape(-1, size)[:, ::-1]
    cut = [rows[:, plane].astype(np.uint64) for plane in range(size)]
    if dtype in ("F32", "F16", "BF16"):
        h = cut[0] << np.uint64(8) | cut[1]
        cut[:2] = [h >> np.uint64(7), (h >> np.uint64(8)) & np.uint64(128) | h & np.uint64(127)]
    elif dtype == "F64":
        h = (cut[0] << np.uint64(8) | cut[1]).astype(np.int64)
        exponent = ((h >> 4) % 2048 - 896) % 2048
        second = (h >> 15 << 7) | (exponent >> 8 << 4) | h % 16
        cut[:2] = [(exponent % 256).astype(np.uint64), second.astype(np.uint64)]
    return [(plane & np.uint64(255)).astype(np.uint8).tobytes() for plane in cut]


def encode_plane(plane: bytes) -> bytes:
    """Returns a plane as one byte, coded or raw."""
    if len(set(plane)) == 1:
        return plane[:1]
    counts = [plane.count(value) for value in range(256)]
    if 128 * sum(count * count for count in counts) > len(plane) ** 2:
        coded = code(plane, normalize(counts))
        if len(coded) < len(plane):
            return coded
    return plane


def normalize(counts: list[int]) -> list[int]:
    """Scales counts to frequencies that sum to 4096."""
    n = sum(counts)
    f = [max(1, (8192 * count + n) // (2 * n)) if count else 0 for count in counts]
    while sum(f) != 4096:
        f[f.index(max(f))] += 1 if sum(f) < 4096 else -1
    return f


def write_model(f: list[int]) -> bytes:
    """Writes frequencies."""
    out, value = bytearray(), 0
    while value < 256:
        if f[value] == 0:
            end = value
            while end < 256 and f[end] == 0:
                end += 1
            out += bytes([0, end - value - 1])
            value = end
        else:
            out += bytes([f[value]] if f[value] < 128 else [128 + (f[value] >> 8), f[value] & 255])
            value += 1
    return bytes(out)


def code(symbols: bytes, f: list[int]) -> bytes:
    """Writes symbols as coded bytes."""
    first = [sum(f[:value]) for value in range(256)]
    states, words = [65536] * LANES, []
    for index in reversed(range(len(symbols))):
        value = symbols[index]
        x = states[index % LANES]
        if x >> 20 >= f[value]:
            words.append(x & 65535)
            x >>= 16
        states[index % LANES] = (x // f[value] << 12) + x % f[value] + first[value]
    coded: npt.NDArray[np.uint16] = np.array(words[::-1], "<u2")
    return write_model(f) + struct.pack(f"<{LANES}I", *states) + coded.tobytes()
