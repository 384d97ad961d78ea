# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`int4:G`, section 5 of FORMAT.md."""

import math

import numpy as np
import numpy.typing as npt

from .codec import Array, Entry, PayloadError, from_float

_BLOCK = 4096


class Int4:
    """Symmetric 4-bit integers with one binary16 scale for each group."""

    fixed = True

    def accepts(self, parameters: str) -> bool:
        """Whether this is a group size."""
        return parameters in ("32", "64", "128")

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str) -> int:
        """Gives the exact size, the same for every type."""
        count, group = math.prod(shape), int(parameters)
        return 2 * -(-count // group) + -(-count // 2)

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload of the exact size."""
        return from_float(_decode(payload, entry), entry.dtype)


def _decode(payload: bytes, entry: Entry) -> npt.NDArray[np.float32]:
    """Decodes `int4:G` (section 5) to the flattened values q * scale."""
    group, count = int(entry.parameters), math.prod(entry.shape)
    position, parts = 0, [np.zeros(0, np.float32)]
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        scales = np.frombuffer(payload, "<f2", -(-size // group), position).astype(np.float32)
        codes = np.frombuffer(payload, np.int8, -(-size // 2), position + 2 * len(scales))
        position += 2 * len(scales) + len(codes)
        if not np.isfinite(scales).all() or np.signbit(scales).any():
            raise PayloadError("a scale is negative or not finite", tensor=entry.name)
        full, length = divmod(size, group)
        whole, rest = codes[: full * group // 2], codes[full * group // 2 :]
        parts.append((_unpack(whole.reshape(full, group // 2)) * scales[:full, None]).ravel())
        if length:
            both = _unpack(rest)
            if both[length:].any():
                raise PayloadError("the unused half of a byte is not zero", tensor=entry.name)
            parts.append(both[:length] * scales[full])
    return np.concatenate(parts)


def _unpack(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Gives the codes of bytes [..., h] as [..., 2h]: low halves, then high halves."""
    return np.concatenate([np.left_shift(codes, 4) >> 4, codes >> 4], axis=-1)
