# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Element types, section 2 of FORMAT.md: their bits, and rounding to them."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIZES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F64": 8,
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "I16": 2,
    "U16": 2,
    "I32": 4,
    "U32": 4,
    "I64": 8,
    "U64": 8,
    "F8_E8M0": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1,
    "C64": 8,
}
"""Bytes of an element, by type."""

NUMBERS = ("F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F64")
"""The types that all codecs take; the others are only for `lossless`."""

_NUMPY = {
    "F32": "<f4",
    "F16": "<f2",
    "F64": "<f8",
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "I16": "<i2",
    "U16": "<u2",
    "I32": "<i4",
    "U32": "<u4",
    "I64": "<i8",
    "U64": "<u8",
    "C64": "<c8",
}
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_LARGEST = {"F32": 3.4028234663852886e38, "F16": 65504.0, "BF16": 3.3895313892515355e38}
# Bits of the mantissa, bias of the exponent, and the code of the largest finite value.
_FLOAT8 = {"F8_E4M3": (3, 7, 0x7E), "F8_E5M2": (2, 15, 0x7B)}


def bits_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the unsigned integers that hold the elements of a type."""
    return np.dtype(f"<u{SIZES[dtype]}")


def round_to_bits(values: npt.NDArray[np.float32], dtype: str) -> Array:
    """Rounds to a type of `NUMBERS`, to nearest even, and to its finite values."""
    if dtype in _FLOAT8:
        return _round_to_float8(values, dtype)
    largest = np.float32(_LARGEST.get(dtype, _LARGEST["F32"]))
    values = np.clip(values, -largest, largest)
    if dtype == "BF16":
        bits = values.view(np.uint32)
        rounded: Array = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return rounded.astype(bits_dtype(dtype))
    return values.astype(_NUMPY[dtype]).view(bits_dtype(dtype))


def _round_to_float8(values: npt.NDArray[np.float32], dtype: str) -> Array:
    """Rounds to one of 8 bits, by a search among its values."""
    mantissa, bias, largest = _FLOAT8[dtype]
    codes = np.arange(largest + 1)
    exponents, fractions = codes >> mantissa, codes % (1 << mantissa) / (1 << mantissa)
    table = np.where(
        exponents == 0,
        np.ldexp(fractions, 1 - bias),
        np.ldexp(1 + fractions, exponents - bias),
    )
    magnitudes = np.minimum(np.abs(values.astype(np.float64)), table[-1])
    above = np.clip(np.searchsorted(table, magnitudes), 1, largest)
    up, down = table[above] - magnitudes, magnitudes - table[above - 1]
    nearest = above - ((down < up) | ((down == up) & (above % 2 == 1)))
    rounded: Array = nearest | np.signbit(values).astype(np.int64) << 7
    return rounded.astype(np.uint8)


def finite(bits: Array, dtype: str) -> npt.NDArray[np.bool_]:
    """Returns which elements of a type of `NUMBERS` are what binary32 holds as a finite number."""
    whole: npt.NDArray[np.bool_]
    if dtype == "F64":
        with np.errstate(over="ignore", invalid="ignore"):
            whole = np.isfinite(bits.view("<f8").astype(np.float32))
    elif dtype == "F8_E4M3":
        whole = (bits & 0x7F) != 0x7F
    else:
        masks = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80, "F8_E5M2": 0x7C}
        exponents = bits.dtype.type(masks[dtype])
        whole = (bits & exponents) != exponents
    return whole


def from_bits(bits: Array, dtype: str) -> Array:
    """Takes bit patterns, of `bits_dtype`, for the values they are.

    Returns:
        The type of NumPy; for BF16 and the 8-bit ones that of ml_dtypes where the package is
        installed, else the patterns.
    """
    if dtype in _NUMPY:
        return bits.view(_NUMPY[dtype])
    try:
        import ml_dtypes
    except ImportError:
        return bits
    return bits.view(getattr(ml_dtypes, _ML_DTYPES[dtype]))
