# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Cases whose fault lies in the type, the shape, the range or the values of a tensor."""

from malformed.build import entry, framed, tensors, values
from malformed.case import SOUND, Case


def _dtypes() -> list[Case]:
    """Element types that are unknown, or whose elements are not whole bytes."""
    others = {"F4": (2, 1), "F6_E2M3": (4, 3), "F6_E3M2": (4, 3)}
    return [
        *(
            Case(
                f"dtype_{dtype.lower()}",
                tensors(bytes(size), x=entry([count], [0, size], dtype)),
                f"unsupported data type: {dtype}",
                tensor="x",
                library_refuses=False,
            )
            for dtype, (count, size) in others.items()
        ),
        Case(
            "dtype_unknown", tensors(x=entry(dtype="F99")), "unsupported data type: F99", tensor="x"
        ),
        Case(
            "dtype_lower_case",
            tensors(x=entry(dtype="f32")),
            "unsupported data type: f32",
            tensor="x",
        ),
        Case("dtype_empty", tensors(x=entry(dtype="")), "unsupported data type", tensor="x"),
        Case("dtype_is_a_number", tensors(x=entry(dtype=32)), '"dtype"', tensor="x"),
    ]


def _shapes() -> list[Case]:
    """Shapes that are none, or whose product does not fit."""

    def form(name: str, shape: str) -> Case:
        header = f'{{"x":{{"dtype":"F32","shape":{shape},"data_offsets":[0,8]}}}}'
        return Case(name, framed(header, bytes(8)), '"shape"', tensor="x")

    def overflow(name: str, shape: list[int], size: int = 8) -> Case:
        data = tensors(bytes(size), x=entry(shape, [0, size]))
        return Case(name, data, "product of the shape overflows", tensor="x")

    def rank(name: str, dimensions: int) -> Case:
        data = tensors(x=entry([1] * (dimensions - 1) + [2]))
        words = f"{dimensions} dimensions"
        return Case(name, data, words, tensor="x", library_refuses=False)

    return [
        form("shape_is_a_number", "2"),
        form("shape_is_null", "null"),
        form("shape_of_strings", '["2"]'),
        form("shape_negative", "[-2]"),
        form("shape_float", "[2.0]"),
        form("shape_minus_zero", "[-0]"),
        form("shape_beyond_64_bits", f"[{2**64}]"),
        overflow("shape_huge", [2**62]),
        overflow("shape_product_overflows", [2**40, 2**40]),
        overflow("shape_product_wraps_to_2", [2**63 + 1, 2]),
        # An empty tensor by accident: every check on its bytes passes (LiteRT 9255).
        overflow("shape_product_wraps_to_0", [2**32, 2**32], 0),
        overflow("shape_bytes_wrap_to_0", [2**31, 2**31], 0),
        overflow("shape_overflows_then_times_0", [2**33, 2**33, 0], 0),
        rank("shape_of_33_dimensions", 33),
        rank("shape_of_100000_dimensions", 100_000),
    ]


def _offsets() -> list[Case]:
    """Ranges that are none, or that do not hold the shape."""

    def form(name: str, offsets: str, words: str) -> Case:
        header = f'{{"x":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}'
        return Case(name, framed(header, bytes(8)), words, tensor="x")

    count, hold = "instead of 2", "do not hold the 8 bytes"
    return [
        form("offsets_none", "[]", count),
        form("offsets_one", "[8]", count),
        form("offsets_three", "[0,4,8]", count),
        form("offsets_object", '{"begin":0,"end":8}', '"data_offsets"'),
        form("offsets_negative", "[-8,0]", '"data_offsets"'),
        form("offsets_float", "[0.0,8.0]", '"data_offsets"'),
        form("offsets_beyond_64_bits", f"[0,{2**64}]", '"data_offsets"'),
        form("offsets_reversed", "[8,0]", hold),
        # end - begin wraps to the right size.
        form("offsets_wrap_near_2_64", f"[{2**64 - 8},0]", hold),
        form("offsets_at_the_end_of_64_bits", f"[{2**64 - 9},{2**64 - 1}]", hold),
    ]


def _coverage() -> list[Case]:
    """Ranges that do not cover the data exactly once."""

    def size(name: str, shape: list[int], dtype: str = "F32") -> Case:
        data = tensors(x=entry(shape, dtype=dtype))
        return Case(name, data, "do not hold the [0-9]+ bytes", tensor="x")

    trailing = "bytes follow the end"
    return [
        Case(
            "offsets_hole_at_start",
            tensors(bytes(12), x=entry(offsets=[4, 12])),
            "a hole",
            tensor="x",
        ),
        Case(
            "offsets_hole_in_the_middle",
            tensors(bytes(12), x=entry([1], [0, 4]), y=entry([1], [8, 12])),
            "a hole",
            tensor="y",
        ),
        Case(
            "offsets_overlap",
            tensors(bytes(12), x=entry(), y=entry(offsets=[4, 12])),
            "an overlap",
            tensor="y",
        ),
        Case("offsets_same_range_twice", tensors(x=entry(), y=entry()), "an overlap", tensor="y"),
        # Buffer sized from the shape, filled from the offsets (fastllm 712).
        size("size_more_than_shape", [1]),
        size("size_less_than_shape", [3]),
        size("size_of_other_dtype", [2], "F16"),
        size("bytes_in_an_empty_tensor", [0]),
        Case("offsets_beyond_data", SOUND[:-4], "ends 4 bytes before", "INVALID_ARGUMENT", "x"),
        Case("no_data_at_all", SOUND[:-8], "ends 8 bytes before", "INVALID_ARGUMENT", "x"),
        Case(
            "last_byte_missing",
            SOUND[:-1],
            "ends 1 bytes? before",
            tensor="x",
            offset=len(SOUND) - 1,
        ),
        Case("trailing_byte", SOUND + b"\0", trailing, offset=len(SOUND)),
        Case("trailing_copy_of_the_file", SOUND + SOUND, trailing, offset=len(SOUND)),
        Case("data_without_tensors", framed("{}", b"\0"), trailing, offset=10),
    ]


def _values() -> list[Case]:
    """Sound files whose values a lossy codec must refuse."""
    patterns = {
        "F32": {"nan": 0x7FC00000, "snan": 0x7F800001, "inf": 0x7F800000, "minus_inf": 0xFF800000},
        "F16": {"nan": 0x7E00, "snan": 0x7C01, "inf": 0x7C00, "minus_inf": 0xFC00},
        "BF16": {"nan": 0x7FC0, "snan": 0x7F81, "inf": 0x7F80, "minus_inf": 0xFF80},
    }
    zeros = [0] * 70
    cases = [
        Case(
            f"value_{kind}_in_{dtype.lower()}",
            values(dtype, [*zeros, bits, 0]),
            "NaN and infinity",
            tensor="x",
            element=70,
            library_refuses=False,
        )
        for dtype, kinds in patterns.items()
        for kind, bits in kinds.items()
    ]
    # 1e30 / 7 is finite in F32 and BF16, and not in binary16, the type of scales.
    cases += [
        Case(
            f"scale_overflow_in_{dtype.lower()}",
            values(dtype, [*zeros, bits]),
            "too large.*scale",
            tensor="x",
            library_refuses=False,
        )
        for dtype, bits in {"F32": 0x7149F2CA, "BF16": 0x714A}.items()
    ]
    return cases


ENTRIES: tuple[Case, ...] = (*_dtypes(), *_shapes(), *_offsets(), *_coverage(), *_values())
