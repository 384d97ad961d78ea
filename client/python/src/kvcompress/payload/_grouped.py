# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`int4:G`, `int8:G` and `int4-hadamard:G`, section 5 of FORMAT.md."""

import math

import numpy as np
import numpy.typing as npt

from ._codec import Array, Entry, PayloadError, from_float

_BLOCK = 4096
_MAX_ROTATION = 256


class Grouped:
    """Symmetric integers with one binary16 scale for each group of elements."""

    fixed = True

    def __init__(self, bits: int, *, rotated: bool = False) -> None:
        """Takes the bits of a code, 4 or 8, and whether values were rotated."""
        self.bits = bits
        self.rotated = rotated

    def accepts(self, parameters: str) -> bool:
        """Whether this is a group size."""
        return parameters in ("32", "64", "128")

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns the exact size, the same for every type."""
        count, group = math.prod(shape), int(parameters)
        return 2 * -(-count // group) + -(-count * self.bits // 8)

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload of the exact size."""
        values = self._dequantize(payload, entry)
        if self.rotated and values.size:
            values = rotate_back(values, rotation_width(entry.shape))
        return from_float(values, entry.dtype)

    def _dequantize(self, payload: bytes, entry: Entry) -> npt.NDArray[np.float32]:
        """Returns the flattened products q * scale."""
        group, count = int(entry.parameters), math.prod(entry.shape)
        position, parts = 0, [np.zeros(0, np.float32)]
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start)
            scales = np.frombuffer(payload, "<f2", -(-size // group), position).astype(np.float32)
            position += 2 * len(scales)
            codes = np.frombuffer(payload, np.int8, -(-size * self.bits // 8), position)
            position += len(codes)
            if not np.isfinite(scales).all() or np.signbit(scales).any():
                raise PayloadError("a scale is negative or not finite", tensor=entry.name)
            full, length = divmod(size, group)
            split = full * group * self.bits // 8
            whole = self._unpack(codes[:split].reshape(full, group * self.bits // 8))
            parts.append((whole * scales[:full, None]).ravel())
            if length:
                rest = self._unpack(codes[split:])
                if rest[length:].any():
                    raise PayloadError("the unused half of a byte is not zero", tensor=entry.name)
                parts.append(rest[:length] * scales[full])
        return np.concatenate(parts)

    def _unpack(self, codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """Returns the codes of bytes [..., h]: of 4 bits [..., 2h], low halves, then high ones."""
        if self.bits == 8:
            return codes
        return np.concatenate([np.left_shift(codes, 4) >> 4, codes >> 4], axis=-1)


def rotation_width(shape: tuple[int, ...]) -> int:
    """Returns the width of the rotation of a tensor of this shape; 1 is none."""
    width = 1
    while shape and width < _MAX_ROTATION and shape[-1] % (2 * width) == 0:
        width *= 2
    return width


def rotate_back(values: npt.NDArray[np.float32], width: int) -> npt.NDArray[np.float32]:
    """Undoes the rotation of flattened values."""
    if width == 1:
        return values
    runs, step = values.reshape(-1, width), 1
    while step < width:
        pairs = runs.reshape(-1, 2, step)
        low, high = pairs[:, 0], pairs[:, 1]
        runs = np.stack([low + high, low - high], axis=1)
        step *= 2
    products = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    signs = np.where(products >> np.uint64(63), np.float32(-1), np.float32(1))
    norm = np.float32(1 / math.sqrt(width))
    return (runs.reshape(-1, width) * norm * signs).ravel()
