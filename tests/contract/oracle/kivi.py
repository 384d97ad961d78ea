# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`int4-kivi` of FORMAT.md in NumPy, group by group, trying every step."""

import numpy as np

from oracle.source import F32, Tensor, round_to

CODES = np.arange(1, 256)
STEPS = np.ldexp((8 + (CODES & 7)).astype(np.float32), (CODES >> 3) - 21).astype(np.float32)

Codes = np.ndarray[tuple[int], np.dtype[np.int64]]


def rounded(ratio: F32) -> F32:
    """Rounds half away from zero."""
    wide = ratio.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(np.float32)


def quantize(x: F32) -> tuple[int, int, Codes] | None:
    """Returns step code, zero point and codes of one group; None where no step serves."""
    with np.errstate(over="ignore"):
        low, high = rounded(x.min() / STEPS), rounded(x.max() / STEPS)
    if low[0] == 0 and high[0] == 0:
        return 0, 0, np.zeros(x.size, np.int64)
    with np.errstate(invalid="ignore"):
        serves = (low >= -128) & (low <= 127) & (high - low <= 15)
    if not serves.any():
        return None
    best = int(np.argmax(serves))
    zero = int(low[best])
    return best + 1, zero, rounded(x / STEPS[best]).astype(np.int64) - zero


def groups_of(tokens: int, channels: int, group: int, keys: bool, count: int) -> list[Codes]:
    """Returns the indices of each group of a unit of `count` elements."""
    index = np.arange(tokens * channels).reshape(tokens, channels)
    if keys:
        return list(index.T)
    parts = [row[c : c + group] for row in index for c in range(0, channels, group)]
    return [part[part < count] for part in parts if part[0] < count]


def unit(x: F32, channels: int, group: int, keys: bool) -> tuple[bytes, F32] | None:
    """Encodes one unit; returns its payload and the values it decodes to."""
    steps, zeros = [], []
    codes, decoded = np.zeros(x.size, np.int64), np.zeros(x.size, np.float32)
    for index in groups_of(-(-x.size // channels), channels, group, keys, x.size):
        found = quantize(x[index])
        if found is None:
            return None
        step, zero, codes[index] = found
        steps.append(step)
        zeros.append(zero & 255)
        size = STEPS[step - 1] if step else np.float32(0)
        decoded[index] = (codes[index] + zero).astype(np.float32) * size
    half = (x.size + 1) // 2
    padded = np.append(codes, np.zeros(x.size % 2, np.int64))
    return bytes(steps) + bytes(zeros) + bytes(
        (padded[:half] | padded[half:] << 4).tolist()
    ), decoded


def encode(source: Tensor, group: int, role: str) -> tuple[bytes, bytes] | None:
    """Returns the payload of a tensor and the elements it decodes to, as stored.

    Args:
        source: The tensor.
        group: Elements of a group.
        role: `k`, `v` or `-`.

    Returns:
        None where no step serves some group.
    """
    x = source.values
    attention = len(source.shape) == 4 and source.shape[3] <= 1024 and x.size > 0
    channels = source.shape[3] if attention else group
    heads = source.shape[0] * source.shape[1] if attention else 1
    exact = channels if attention else 0
    item = len(source.data) // max(x.size, 1)
    payload, decoded = b"", b""
    for head in range(heads):
        begin, end = x.size // heads * head, x.size // heads * (head + 1)
        payload += source.data[begin * item : (begin + exact) * item]
        decoded += source.data[begin * item : (begin + exact) * item]
        for first in range(begin + exact, end, channels * group):
            part = x[first : min(first + channels * group, end)]
            done = unit(part, channels, group, role == "k" and attention)
            if done is None:
                return None
            payload += done[0]
            decoded += round_to(source.dtype, done[1])
    return payload, decoded
