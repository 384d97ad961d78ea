# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`sparse:S,G`, section 5 of FORMAT.md."""

import math
import re

import numpy as np

from ._codec import Array, Entry, PayloadError, from_float

_BLOCK = 4096


class Sparse:
    """The largest values as 4-bit integers, and a bitmap of where they are."""

    fixed = True

    def accepts(self, parameters: str) -> bool:
        """Whether this is a sparsity in its one form, and a group size."""
        return re.fullmatch(r"(0|1|0\.[0-9]{0,3}[1-9]),(32|64|128)", parameters) is not None

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns the exact size, the same for every type."""
        whole, rest = divmod(math.prod(shape), _BLOCK)
        return whole * sum(sizes(parameters, _BLOCK)) + sum(sizes(parameters, rest))

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload of the exact size."""
        count, group = math.prod(entry.shape), int(entry.parameters.partition(",")[2])
        position, values = 0, np.zeros(count, np.float32)
        for start in range(0, count, _BLOCK):
            n = min(_BLOCK, count - start)
            k = kept(entry.parameters, n)
            ends = np.cumsum(sizes(entry.parameters, n))
            block = np.frombuffer(payload, np.uint8, ends[2], position)
            position += len(block)
            bitmap, scales, packed = np.split(block, ends[:2])
            bits = np.unpackbits(bitmap, bitorder="little")
            if bits[n:].any() or bits.sum() != k:
                raise PayloadError("the bitmap breaks a rule", tensor=entry.name)
            where = np.flatnonzero(bits[:n])
            scale = scales.view("<f2").astype(np.float32)
            unused = np.ones(len(scale), bool)
            unused[where // group] = False
            if not np.isfinite(scale).all() or np.signbit(scale).any() or scale[unused].any():
                raise PayloadError("a scale breaks a rule", tensor=entry.name)
            codes = np.concatenate([packed & 15, packed >> 4]).astype(np.int8)
            if codes[k:].any():
                raise PayloadError("the unused half of a byte is not zero", tensor=entry.name)
            values[start + where] = ((codes[:k] ^ 8) - 8) * scale[where // group]
        return from_float(values, entry.dtype)


def kept(parameters: str, n: int) -> int:
    """Returns how many of the n elements of a block are kept."""
    digits = parameters.partition(",")[0].partition(".")
    return n - n * (int(digits[0]) * 10000 + int(digits[2].ljust(4, "0"))) // 10000


def sizes(parameters: str, n: int) -> tuple[int, int, int]:
    """Returns the bytes of bitmap, scales and codes of a block of n elements."""
    group = int(parameters.partition(",")[2])
    return -(-n // 8), 2 * -(-n // group), -(-kept(parameters, n) // 2)
