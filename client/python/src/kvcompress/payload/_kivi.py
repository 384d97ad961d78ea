# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`int4-kivi:G`, section 5 of FORMAT.md."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._codec import Array, Entry, PayloadError, from_float
from ._dtypes import SIZES, bits_dtype, finite, from_bits

_MAX_CHANNELS = 1024


class Geometry(NamedTuple):
    """How a tensor is cut: heads of an exact token and units of `group` tokens."""

    heads: int
    elements: int  # of a head
    channels: int
    exact: int  # elements at the start of a head that are kept
    group: int

    @property
    def units(self) -> list[int]:
        """The elements of each unit of a head."""
        whole, rest = divmod(self.elements - self.exact, self.channels * self.group)
        return [self.channels * self.group] * whole + [rest] * (rest > 0)


class Kivi:
    """Asymmetric 4-bit integers, of keys along tokens and of all else along channels."""

    fixed = True

    def accepts(self, parameters: str) -> bool:
        """Whether this is a group size."""
        return parameters in ("32", "64", "128")

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns the exact size."""
        cut = geometry(shape, int(parameters))
        if not cut.elements:
            return 0
        whole, rest = divmod(cut.elements - cut.exact, cut.channels * cut.group)
        sizes = [
            2 * len(groups(count, cut, role)[1]) + -(-count // 2)
            for count in (cut.channels * cut.group, rest)
        ]
        exact = cut.exact * SIZES[dtype]
        return cut.heads * (exact + whole * sizes[0] + sizes[1])

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload of the exact size."""
        cut = geometry(entry.shape, int(entry.parameters))
        bits = bits_dtype(entry.dtype)
        empty = from_float(np.zeros(0, np.float32), entry.dtype)
        position, parts = 0, [empty]
        for _ in range(cut.heads if cut.elements else 0):
            if cut.exact:
                kept = np.frombuffer(payload, bits, cut.exact, position)
                position += kept.nbytes
                if not finite(kept, entry.dtype).all():
                    raise PayloadError("a kept value is not finite", tensor=entry.name)
                parts.append(from_bits(kept, entry.dtype))
            for count in cut.units:
                index, sizes = groups(count, cut, entry.role)
                size = 2 * len(sizes) + -(-count // 2)
                unit = np.frombuffer(payload, np.uint8, size, position)
                position += size
                parts.append(from_float(dequantize(unit, count, index, entry), entry.dtype))
        return np.concatenate(parts)


def geometry(shape: tuple[int, ...], group: int) -> Geometry:
    """Returns the geometry of a tensor of this shape."""
    count = math.prod(shape)
    if len(shape) == 4 and 0 < shape[3] <= _MAX_CHANNELS and count:
        heads = shape[0] * shape[1]
        return Geometry(heads, count // heads, shape[3], shape[3], group)
    return Geometry(1, count, group, 0, group)


def groups(
    count: int, cut: Geometry, role: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the group of each element of a unit, and the elements of each group."""
    channel, token = np.arange(count) % cut.channels, np.arange(count) // cut.channels
    if role == "k" and cut.exact:
        index = channel
    else:
        index = token * -(-cut.channels // cut.group) + channel // cut.group
    return index, np.bincount(index) if count else np.zeros(0, np.int64)


def dequantize(
    unit: npt.NDArray[np.uint8], count: int, index: npt.NDArray[np.int64], entry: Entry
) -> npt.NDArray[np.float32]:
    """Returns the products (q + z) * s of one unit."""
    total = int(index.max()) + 1
    steps, zeros, packed = np.split(unit, [total, 2 * total])
    codes = np.concatenate([packed & 15, packed >> 4]).astype(np.int32)
    if codes[count:].any():
        raise PayloadError("the unused half of a byte is not zero", tensor=entry.name)
    c, z = steps.astype(np.int32), zeros.view(np.int8).astype(np.int32)
    s = np.ldexp((8 + (c & 7)).astype(np.float32), (c >> 3) - 21) * (c > 0)
    if z[c == 0].any() or codes[:count][c[index] == 0].any():
        raise PayloadError("a group of zeros has codes", tensor=entry.name)
    values: npt.NDArray[np.float32] = (codes[:count] + z[index]).astype(np.float32) * s.astype(
        np.float32
    )[index]
    return values
