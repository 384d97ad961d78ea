# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the service does not take, and how it says so."""

import json
import struct

import numpy as np
import pytest

from kvcompress import (
    Client,
    FailedPreconditionError,
    InvalidArgumentError,
    Thresholds,
)
from oracle import caches, encoder
from oracle.source import NUMBERS, Tensor, tensor, write


def file_of(header: object, data: bytes = b"") -> bytes:
    """Makes a safetensors file of any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("element", [0, 63, 4095, 4096, 9999])
def test_not_finite(client: Client, dtype: str, value: float, element: int) -> None:
    values = np.linspace(-1, 1, 10000, dtype=np.float32)
    values[element] = value
    file = write([tensor("good", dtype, [1.0, 2.0]), tensor("bad ☂", dtype, values)])
    # An FP8 type without infinity has NaN for it.
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(file, codec="int4")
    assert caught.value.tensor == "bad ☂"
    assert caught.value.element == element
    assert caught.value.reason
    with pytest.raises(InvalidArgumentError) as caught:
        client.measure(file, codec="int4")
    assert (caught.value.tensor, caught.value.element) == ("bad ☂", element)


def test_doubles_beyond_binary32(client: Client) -> None:
    values = np.ones(200)
    values[150] = -3.5e38
    file = write([Tensor("huge", "F64", (200,), values.astype("<f8").tobytes())])
    for codec in ("int4", "int4-kivi", "sparse", "ecsq", "klt"):
        with pytest.raises(InvalidArgumentError) as caught:
            client.compress(file, codec=codec)
        assert (caught.value.reason, caught.value.element) == ("NOT_FINITE", 150)
    report = client.measure(file, codec="lossless")
    assert report.verdict.passed


@pytest.mark.parametrize("size", [458640.0, 3e38])
def test_scale_beyond_half(client: Client, size: float) -> None:
    values = np.ones(200, np.float32)
    values[150] = -size
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(write([tensor("huge", "F32", values)]), codec="int4")
    assert caught.value.tensor == "huge"


def test_compressing_an_artefact(client: Client) -> None:
    artefact = encoder.encode(caches.tiny()).data
    with pytest.raises(FailedPreconditionError) as caught:
        client.compress(artefact, codec="int4")
    assert caught.value.reason


def test_decompressing_what_is_no_artefact(client: Client) -> None:
    for file in (caches.mixed(), caches.scrambled(), write([])):
        with pytest.raises(FailedPreconditionError) as caught:
            client.decompress(file)
        assert caught.value.reason


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
def test_truncated_input(client: Client, length: int) -> None:
    with pytest.raises(InvalidArgumentError):
        client.compress(caches.tiny()[:length], codec="int4")


def test_truncated_data_names_the_tensor(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(caches.tiny()[:-1], codec="int4")
    assert caught.value.tensor == "layer_0_value"


def test_trailing_input(client: Client) -> None:
    with pytest.raises(InvalidArgumentError):
        client.compress(caches.tiny() + b"\0", codec="int4")


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
BROKEN = {
    "not JSON": file_of(b"{", b""),
    "no object": file_of([]),
    "space before the object": file_of(b" {}"),
    "not UTF-8": file_of(b'{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"1234"),
    "header beyond the format": struct.pack("<Q", 100_000_001) + b"{}",
    "header of 2^64-1 bytes": b"\xff" * 8 + b"{}",
    "unknown dtype": file_of({"x": {**ENTRY, "dtype": "F24"}}, b"1234"),
    "F4": file_of({"x": {"dtype": "F4", "shape": [16], "data_offsets": [0, 8]}}, b"12345678"),
    "F6": file_of({"x": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}, b"123"),
    "product of doubles overflows": file_of(
        {"x": {"dtype": "F64", "shape": [2**60 + 1], "data_offsets": [0, 8]}}, b"12345678"
    ),
    "more elements than bytes": file_of({"x": {**ENTRY, "dtype": "I64"}}, b"1234"),
    "hole": file_of({"x": {**ENTRY, "data_offsets": [4, 8]}}, b"12345678"),
    "overlap": file_of({"x": ENTRY, "y": ENTRY}, b"1234"),
    "shape and size differ": file_of({"x": {**ENTRY, "shape": [2]}}, b"1234"),
    "product overflows": file_of({"x": {**ENTRY, "shape": [2**32, 2**32]}}, b"1234"),
    "negative dimension": file_of({"x": {**ENTRY, "shape": [-1]}}, b"1234"),
    "fractional dimension": file_of({"x": {**ENTRY, "shape": [1.0]}}, b"1234"),
    "backwards": file_of({"x": {**ENTRY, "data_offsets": [4, 0]}}, b"1234"),
    "field missing": file_of({"x": {"dtype": "F32", "shape": [1]}}, b"1234"),
    "field too many": file_of({"x": {**ENTRY, "more": 1}}, b"1234"),
    "metadata not text": file_of({"__metadata__": {"a": 1}, "x": ENTRY}, b"1234"),
    "key twice": file_of(
        b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        b"12345678",
    ),
    "deep": file_of(b"[" * 100_000, b""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file(client: Client, name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(BROKEN[name], codec="int4")
    assert caught.value.reason


@pytest.mark.parametrize("size", [0, 1, 16, 48, 63, 256, 2**31])
def test_group_size(client: Client, size: int) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(caches.tiny(), codec={"name": "int4", "group_size": size})
    assert caught.value.field == "options.codec"
    assert "group_size" in caught.value.message


def test_unknown_codec(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(caches.tiny(), codec="int3")
    assert "codec" in (caught.value.field or "")


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"Upper": "x"},
        {"a" * 65: "x"},
        {"space here": "x"},
        {"k": "v" * 1025},
        {"k": "ü" * 513},
        {f"k{index}": "" for index in range(33)},
    ],
)
def test_labels(client: Client, labels: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(caches.tiny(), labels=labels, codec="int4")
    assert "labels" in (caught.value.field or "")


def test_labels_at_their_limits(client: Client) -> None:
    labels = {f"{index:02}".ljust(64, "z"): "ü" * 512 for index in range(32)}
    got = client.compress(caches.tiny(), labels=labels, codec="int4").artefact
    assert got == encoder.encode(caches.tiny(), 64, labels).data


@pytest.mark.parametrize(
    "thresholds",
    [
        Thresholds(max_rmse=float("nan")),
        Thresholds(max_rmse=-1),
        Thresholds(max_error=0),
        Thresholds(min_snr_db=float("inf")),
    ],
)
def test_thresholds(client: Client, thresholds: Thresholds) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(caches.tiny(), thresholds=thresholds, codec="int4")
    assert "thresholds" in (caught.value.field or "")


def test_thresholds_decide(client: Client) -> None:
    report = client.measure(caches.shapes("F32"), codec="int4")
    assert not report.verdict.passed
    loose = Thresholds(max_rmse=100, max_error=100, min_snr_db=-10, min_cosine_similarity=0.1)
    passed = client.measure(caches.shapes("F32"), thresholds=loose, codec="int4")
    assert passed.verdict.passed
    assert passed.tensors_failed == 0


def test_report_without_tensors(client: Client) -> None:
    report = client.measure(caches.mixed(), report_tensors=False, codec="int4")
    assert report.tensors == ()
    assert report.worst_tensor is not None


def test_many_dimensions(client: Client) -> None:
    file = write([Tensor("x", "F16", (1,) * 32, b"\0\0")])
    assert client.compress(file, codec="int4").artefact == encoder.encode(file).data
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress(write([Tensor("x", "F16", (1,) * 33, b"\0\0")]), codec="int4")
    assert caught.value.tensor == "x"
