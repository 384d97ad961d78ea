# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Cases whose fault lies in the length, the JSON or the form of the header."""

import gzip
import io
import pickle
import zipfile

from malformed.build import entry, framed, tensors, without
from malformed.case import SOUND, Case

MAX_HEADER = 100_000_000


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle.dumps({"x": 1}, protocol=2))
    return buffer.getvalue()


def _cut(name: str, size: int) -> Case:
    return Case(name, SOUND[:size], "ends after", offset=size)


def _length(name: str, data: bytes, recognised: str = "") -> Case:
    words = "announces a header of [0-9]+ bytes"
    return Case(name, data, words, offset=0, recognised=recognised)


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
        _length("git_lfs_pointer", pointer, "a Git LFS pointer.*git lfs pull"),
        _length("gzip_of_a_file", gzip.compress(SOUND, mtime=1_700_000_000), "with gzip"),
        _length("pickle", pickle.dumps([0.5] * 4, protocol=2), "a Python pickle"),
        _length("zip_of_pickles", _zip(), "a PyTorch checkpoint"),
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


FIELDS = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'


def _with_metadata(value: str) -> bytes:
    return framed(f'{{"__metadata__":{value},"x":{FIELDS}}}', bytes(8))


def _duplicates() -> list[Case]:
    """Keys that are there twice."""
    empty = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
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
            framed(f'{{"x":{FIELDS},"x":{FIELDS.replace("0,8", "8,16")}}}', bytes(16)),
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
            framed(f'{{"x":{FIELDS.replace("{", """{"dtype":"F32",""")}}}', bytes(8)),
            "duplicate key",
            tensor="x",
        ),
        Case("duplicate_metadata", _with_metadata('{},"__metadata__":{}'), "duplicate key"),
        Case(
            "duplicate_metadata_key",
            _with_metadata('{"a":"1","a":"2"}'),
            "duplicate key",
            library_refuses=False,
        ),
    ]


def _metadata() -> list[Case]:
    """Metadata that is no map of strings, or that is ours."""
    return [
        Case("metadata_number", _with_metadata('{"a":1}'), "a number is not allowed"),
        Case("metadata_nested", _with_metadata('{"a":{"b":"c"}}'), "an object is not allowed"),
        Case("metadata_value_null", _with_metadata('{"a":null}'), "null is not allowed"),
        Case("metadata_array", _with_metadata('["a"]'), "an array is not allowed"),
        Case("metadata_null", _with_metadata("null"), "null is not allowed", library_refuses=False),
        Case(
            "metadata_reserved_key",
            _with_metadata('{"kvcompress.format":"1"}'),
            "already compressed.*kvcompress.format",
            code="FAILED_PRECONDITION",
            library_refuses=False,
        ),
    ]


def _fields() -> list[Case]:
    """Tensors of another form, with fields too few or too many."""
    return [
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


HEADERS: tuple[Case, ...] = (*_beginnings(), *_json(), *_duplicates(), *_metadata(), *_fields())
