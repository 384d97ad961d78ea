# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The corpus.

Sources: the rules of the format (https://github.com/huggingface/safetensors), the
two rules that kvcompress/safetensors.h adds to them, and the faults that other
loaders were found to have; those cases name the fault in a comment.
"""

import gzip
import io
import pickle
import zipfile
from dataclasses import dataclass

from malformed.build import entry, framed, tensors, values, without

MAX_HEADER = 100_000_000
SOUND = tensors(x=entry())


@dataclass(frozen=True)
class Case:
    """A file that must be refused.

    Attributes:
        name: What is wrong.
        data: The file.
        words: A regular expression that the message matches.
        code: Canonical code of the error.
        tensor: Name the error gives for the tensor; None when it is about the file.
        offset: Position the error gives; None when any will do, or none.
        element: Index the error gives for the element; None when there is none.
        library_refuses: Whether the reference library refuses the file as well.
    """

    name: str
    data: bytes
    words: str
    code: str = "INVALID_ARGUMENT"
    tensor: str | None = None
    offset: int | None = None
    element: int | None = None
    library_refuses: bool = True


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle.dumps({"x": 1}, protocol=2))
    return buffer.getvalue()


def _cut(name: str, size: int) -> Case:
    return Case(name, SOUND[:size], "ends after", offset=size)


def _length(name: str, data: bytes) -> Case:
    return Case(name, data, "announces a header of [0-9]+ bytes", offset=0)


def _beginnings() -> list[Case]:
    """Faults of the first eight bytes, and files that are something else."""
    pointer = (
        b"version https://git-lfs.github.com/spec/v1\n"
        b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
        b"size 2217072\n"
    )
    return [
        _cut("empty_file", 0),
        _cut("length_cut_to_1_byte", 1),
        *(_cut(f"length_cut_to_{size}_bytes", size) for size in range(2, 8)),
        _cut("nothing_after_length", 8),
        _cut("header_cut_short", 20),
        Case(
            "header_length_beyond_file", framed('{"x":1}', length=4096), "ends after 7", offset=15
        ),
        _length("header_length_0", framed("")),
        _length("header_length_1", framed("{")),
        # 8 + length wraps (1BIT-MONSTER 1326, fastllm 713).
        _length("header_length_2_64_minus_1", framed("{}", length=2**64 - 1)),
        _length("header_length_2_64_minus_8", framed("{}", length=2**64 - 8)),
        _length("header_length_2_63", framed("{}", length=2**63)),
        _length("header_length_above_limit", framed("{}", length=MAX_HEADER + 1)),
        _length("header_length_big_endian", len("{}").to_bytes(8, "big") + b"{}"),
        _length("git_lfs_pointer", pointer),
        _length("gzip_of_a_file", gzip.compress(SOUND, mtime=1_700_000_000)),
        _length("pickle", pickle.dumps([0.5] * 4, protocol=2)),
        _length("zip_of_pickles", _zip()),
    ]


def _json() -> list[Case]:
    """Headers that are not the JSON that the format asks for."""
    sound, data = SOUND[8:-8], bytes(8)
    begin, invalid, end = "does not begin with '{'", "invalid JSON", 8 + len(sound)

    def replaced(old: bytes, new: bytes) -> bytes:
        return framed(sound.replace(old, new), data)

    return [
        Case(
            "header_begins_with_space",
            framed(b" " + sound, data),
            begin,
            offset=8,
            library_refuses=False,
        ),
        Case("header_begins_with_bom", framed(b"\xef\xbb\xbf" + sound, data), begin, offset=8),
        Case("header_is_an_array", framed("[]"), begin, offset=8),
        Case("header_is_a_string", framed('"x"'), begin, offset=8),
        Case("header_is_null", framed("null"), begin, offset=8),
        Case("json_cut_short", framed(sound[:-1], data), invalid),
        Case("json_trailing_comma", framed(sound[:-1] + b",}", data), invalid),
        Case("json_single_quotes", replaced(b'"', b"'"), invalid, offset=9),
        Case("json_comment", framed(sound[:-1] + b"/**/}", data), invalid),
        Case("json_control_character_in_name", replaced(b"x", b"x\n"), invalid),
        Case("json_lone_surrogate", replaced(b"x", b"\\ud800"), invalid),
        Case("json_nan_literal", replaced(b"[2]", b"[NaN]"), invalid),
        Case("trailing_text_after_json", framed(sound + b"x", data), invalid, offset=end),
        Case("second_object_after_json", framed(sound + b"{}", data), invalid, offset=end),
        Case("nul_padding", framed(sound + bytes(3), data), invalid, offset=end),
        Case("invalid_utf8_in_name", replaced(b"x", b"\xff"), invalid, offset=10),
        Case("overlong_utf8_in_name", replaced(b"x", b"\xc0\xaf"), invalid, offset=10),
        # A recursive parser runs out of stack.
        Case("deep_nesting", framed("[" * 100_000), begin, offset=8),
        Case("deep_nesting_of_objects", framed('{"x":' * 100_000), "unknown field", tensor="x"),
        Case(
            "deep_nesting_in_shape",
            replaced(b"[2]", b"[" * 100_000 + b"]" * 100_000),
            '"shape"',
            tensor="x",
        ),
        Case(
            "deep_nesting_in_metadata",
            framed('{"__metadata__":{"a":' + "[" * 100_000 + "]" * 100_000 + "}}"),
            "not allowed",
        ),
    ]


def _structure() -> list[Case]:
    """JSON that is sound, of the wrong form."""
    fields = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    empty = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    data = bytes(8)

    def metadata(value: str) -> bytes:
        return framed(f'{{"__metadata__":{value},"x":{fields}}}', data)

    return [
        Case(
            "duplicate_tensor",
            framed(f'{{"x":{empty},"x":{empty}}}'),
            "duplicate key",
            tensor="x",
            library_refuses=False,
        ),
        Case(
            "duplicate_tensor_over_two_ranges",
            framed(f'{{"x":{fields},"x":{fields.replace("0,8", "8,16")}}}', bytes(16)),
            "duplicate key",
            tensor="x",
        ),
        Case(
            "duplicate_tensor_by_escape",
            framed(f'{{"x":{empty},"\\u0078":{empty}}}'),
            "duplicate key",
            tensor="x",
            library_refuses=False,
        ),
        Case(
            "duplicate_field",
            framed(f'{{"x":{fields.replace("{", """{"dtype":"F32",""")}}}', data),
            "duplicate key",
            tensor="x",
        ),
        Case("duplicate_metadata", metadata('{},"__metadata__":{}'), "duplicate key"),
        Case(
            "duplicate_metadata_key",
            metadata('{"a":"1","a":"2"}'),
            "duplicate key",
            library_refuses=False,
        ),
        Case("metadata_number", metadata('{"a":1}'), "a number is not allowed"),
        Case("metadata_nested", metadata('{"a":{"b":"c"}}'), "an object is not allowed"),
        Case("metadata_value_null", metadata('{"a":null}'), "null is not allowed"),
        Case("metadata_array", metadata('["a"]'), "an array is not allowed"),
        Case("metadata_null", metadata("null"), "null is not allowed", library_refuses=False),
        Case(
            "metadata_reserved_key",
            metadata('{"kvcompress.format":"1"}'),
            "already compressed.*kvcompress.format",
            code="FAILED_PRECONDITION",
            library_refuses=False,
        ),
        Case("tensor_is_a_number", tensors(x=1), "a number is not allowed", tensor="x"),
        Case("tensor_is_null", tensors(x=None), "null is not allowed", tensor="x"),
        Case(
            "tensor_is_an_array",
            tensors(x=["F32", [2], [0, 8]]),
            "an array is not allowed",
            tensor="x",
            library_refuses=False,
        ),
        Case("missing_dtype", tensors(x=without("dtype")), '"dtype" is missing', tensor="x"),
        Case("missing_shape", tensors(x=without("shape")), '"shape" is missing', tensor="x"),
        Case(
            "missing_data_offsets",
            tensors(x=without("data_offsets")),
            '"data_offsets" is missing',
            tensor="x",
        ),
        Case(
            "extra_field",
            tensors(x=entry(strides=[1])),
            'unknown field "strides"',
            tensor="x",
            library_refuses=False,
        ),
    ]


def _dtypes() -> list[Case]:
    """Element types that are unknown, or that no cache has."""
    others = {
        "F64": 8,
        "I64": 8,
        "U64": 8,
        "I32": 4,
        "I16": 2,
        "I8": 1,
        "U8": 1,
        "BOOL": 1,
        "F8_E4M3": 1,
        "F8_E5M2": 1,
    }
    return [
        *(
            Case(
                f"dtype_{dtype.lower()}",
                tensors(bytes(width), x=entry([1], [0, width], dtype)),
                f"unsupported data type: {dtype}",
                tensor="x",
                library_refuses=False,
            )
            for dtype, width in others.items()
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
    """Ranges that do not cover the data exactly once."""

    def form(name: str, offsets: str, words: str) -> Case:
        header = f'{{"x":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}'
        return Case(name, framed(header, bytes(8)), words, tensor="x")

    def size(name: str, shape: list[int], dtype: str = "F32") -> Case:
        data = tensors(x=entry(shape, dtype=dtype))
        return Case(name, data, "do not hold the [0-9]+ bytes", tensor="x")

    count, hold = "instead of 2", "do not hold the 8 bytes"
    trailing = "bytes follow the end"
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


CASES: tuple[Case, ...] = (
    *_beginnings(),
    *_json(),
    *_structure(),
    *_dtypes(),
    *_shapes(),
    *_offsets(),
    *_values(),
)

# Unusual files that the format allows: they must be taken.
CONTROLS: dict[str, bytes] = {
    "one_tensor": SOUND,
    "no_tensors": framed("{}"),
    "only_metadata": framed('{"__metadata__":{"a":"b"}}'),
    "scalar": tensors(bytes(4), x=entry([], [0, 4])),
    "empty_tensor": tensors(b"", x=entry([0], [0, 0])),
    "empty_tensor_of_many_dimensions": tensors(b"", x=entry([3, 0, 2**31], [0, 0])),
    "tensors_in_another_order_than_their_data": tensors(
        bytes(range(12)), x=entry(offsets=[4, 12]), y=entry([1], [0, 4])
    ),
    "fields_in_another_order": framed(
        '{"x":{"data_offsets":[0,8],"shape":[2],"dtype":"F32"}}', bytes(8)
    ),
    "spaces_inside_and_after_the_json": framed(
        '{ "x" : {"dtype":"F32", "shape":[2],\n "data_offsets":[0,8]} }     ', bytes(8)
    ),
    "metadata_at_the_end": framed(
        '{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{}}', bytes(8)
    ),
    "name_with_escapes": framed(
        '{"\\u00e9\\n\\"/":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)
    ),
    "name_empty": framed('{"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)),
    "shape_of_32_dimensions": tensors(x=entry([1] * 31 + [2])),
}
