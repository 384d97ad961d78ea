# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Every element type through every codec, as files, as arrays and on the command line."""

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kv_compress import Run, succeed

from kvcompress import Client, DataLossError, InvalidArgumentError, Thresholds, payload
from kvcompress._arrays import load_arrays
from oracle import caches, encoder, metrics
from oracle.source import (
    FLOAT8,
    ITEM_SIZE,
    LARGEST,
    NUMBERS,
    Tensor,
    exact,
    narrow,
    read,
    tensor,
    write,
)

CODECS = (
    "int4",
    "int8:32",
    "int4-hadamard",
    "int4-kivi",
    "sparse:0.25",
    "ecsq:contract",
    "ecsq:high",
    "klt:contract",
    "klt:high",
    "auto",
    "lossless",
    "int4+zstd",
    "lossless+lz4",
)
ARRAY_TYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    **FLOAT8,
}
INTEGERS = tuple(dtype for dtype in ITEM_SIZE if dtype not in NUMBERS)


def cache_of(dtype: str, tokens: int = 150) -> bytes:
    """Keys with offsets, values with norms, and a tensor of another shape, of a type."""
    rng = np.random.default_rng(ITEM_SIZE[dtype])
    shape = (1, 2, tokens, 64)
    keys = rng.standard_normal(shape) * 0.7 + 3 * rng.standard_normal(64)
    values = rng.standard_normal(shape) * np.exp2(rng.uniform(-3, 0, (1, 2, tokens, 1)))
    return write(
        [
            tensor("layer_0_key", dtype, keys),
            tensor("layer_0_value", dtype, values),
            tensor("other", dtype, rng.standard_normal(301)),
        ]
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_errors_are_those_of_the_result(client: Client, dtype: str, codec: str) -> None:
    file = cache_of(dtype)
    got = client.compress(file, codec=codec, reconstruct=True)
    restored = client.decompress(got.artefact or b"").safetensors or b""
    assert restored == got.reconstructed
    offline = payload.read(got.artefact or b"")
    pairs = []
    for before, after, report in zip(
        read(file)[0], read(restored)[0], got.report.tensors, strict=True
    ):
        assert (after.name, after.dtype, after.shape) == (before.name, dtype, before.shape)
        assert offline[after.name].tobytes() == after.data
        assert report.dtype == dtype
        assert np.isfinite(after.exact).all()
        if codec.startswith("lossless"):
            assert after.data == before.data
        pairs.append((before.exact, after.exact))
        want = metrics.measure([pairs[-1]])
        assert report.metrics.max_error == want.max_error
        assert report.metrics.rmse == pytest.approx(want.rmse, rel=1e-9)
        assert (report.metrics.snr_db is None) == (want.snr_db is None)
    pooled = metrics.measure(pairs)
    assert got.report.metrics.rmse == pytest.approx(pooled.rmse, rel=1e-9)
    assert got.report.metrics.snr_db is None or got.report.metrics.snr_db > 5
    measured = client.measure(file, codec=codec)
    assert measured.metrics == got.report.metrics


@pytest.mark.parametrize("dtype", NUMBERS)
def test_auto_holds_its_thresholds(client: Client, dtype: str) -> None:
    got = client.compress(cache_of(dtype), codec="auto", thresholds=Thresholds(min_snr_db=25))
    assert all(report.verdict.passed for report in got.report.tensors)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_what_saturates_stays_finite(client: Client, dtype: str) -> None:
    values = np.full(256, LARGEST[dtype], np.float32)
    values[::3] *= -0.75
    file = write([tensor("x", dtype, values)])
    for codec in CODECS[:-3]:
        if dtype == "F8_E5M2" and codec.startswith("sparse"):
            continue
        got = client.compress(file, codec=codec, reconstruct=True)
        after = read(got.reconstructed or b"")[0][0]
        assert np.isfinite(after.exact).all()
        assert np.abs(after.exact).max() <= LARGEST[dtype]


def cast(sample: bytes, dtype: str) -> bytes:
    """The real cache in another type."""
    return write(
        Tensor(each.name, dtype, each.shape, narrow(dtype, each.values)) for each in read(sample)[0]
    )


@pytest.mark.parametrize(("dtype", "least"), [("F8_E4M3", 1.15), ("F8_E5M2", 1.33)])
def test_lossless_of_a_real_cache_in_fp8(
    client: Client, sample: bytes, dtype: str, least: float
) -> None:
    file = cast(sample, dtype)
    got = client.compress(file, codec="lossless")
    assert client.decompress(got.artefact or b"").safetensors == file
    report = got.report
    assert report.original_size_bytes / report.compressed_size_bytes >= least
    want = encoder.encode(file, None, codec="lossless")
    assert got.artefact == want.data


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize(("codec", "ratio"), [("ecsq", 1.9), ("klt", 2.4)])
def test_a_real_cache_in_fp8_is_lossy_too(
    client: Client, sample: bytes, dtype: str, codec: str, ratio: float
) -> None:
    file = cast(sample, dtype)
    got = client.compress(file, codec=f"{codec}:high", reconstruct=True)
    assert len(file) / len(got.artefact or b"") > ratio
    arrays = payload.read(got.artefact or b"")
    restored = read(got.reconstructed or b"")[0]
    assert all(arrays[each.name].tobytes() == each.data for each in restored)
    want = metrics.measure((a.exact, b.exact) for a, b in zip(read(file)[0], restored, strict=True))
    assert got.report.metrics.rmse == pytest.approx(want.rmse, rel=1e-9)


def test_doubles_cost_what_their_narrow_form_costs(client: Client, sample: bytes) -> None:
    narrow_size = client.measure(sample, codec="lossless").compressed_size_bytes
    wide_size = client.measure(cast(sample, "F64"), codec="lossless").compressed_size_bytes
    assert wide_size < 1.06 * narrow_size


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_no_number_is_kept(client: Client, codec: str) -> None:
    file = caches.attached()
    numbers = write(each for each in read(file)[0] if each.dtype in NUMBERS)
    strict = Thresholds(max_rmse=1e-12, max_error=1e-12, min_snr_db=300, min_token_snr_db_p1=300)
    thresholds = None if codec == "auto" else strict
    got = client.compress(file, codec=codec, thresholds=thresholds, require=False)
    restored = client.decompress(got.artefact or b"").safetensors or b""
    plain = {}
    for before, after, report in zip(
        read(file)[0], read(restored)[0], got.report.tensors, strict=True
    ):
        if before.dtype in NUMBERS:
            plain[before.name] = report
            continue
        assert after == before
        assert report.codec == (codec if codec.startswith("lossless") else "lossless")
        assert report.verdict.passed
        assert report.metrics.snr_db is None
        assert report.metrics.elements == math.prod(before.shape)
    alone = client.compress(numbers, codec=codec, thresholds=thresholds, require=False).report
    assert alone.metrics == got.report.metrics
    assert alone.tensors_failed == got.report.tensors_failed
    assert {each.name: each for each in alone.tensors} == plain


def test_arrays_of_every_type(client: Client) -> None:
    rng = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for dtype, size in ITEM_SIZE.items():
        data = rng.bytes(6 * size) if dtype != "BOOL" else bytes([0, 1, 1, 0, 1, 0])
        known = ARRAY_TYPES.get(dtype)
        if known is None:
            names = {"BOOL": "?", "C64": "<c8"}
            letter = {"F": "f", "I": "i", "U": "u"}.get(dtype[0], "")
            known = np.dtype(names.get(dtype, f"<{letter}{size}"))
        arrays[dtype] = np.frombuffer(data, known).reshape(2, 3)
    got = client.compress(arrays, codec="lossless")
    assert [report.dtype for report in got.report.tensors] == list(ITEM_SIZE)
    back = load_arrays(client.decompress(got.artefact or b"").safetensors or b"")[0]
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert back[name].tobytes() == array.tobytes()
        assert payload.read(got.artefact or b"")[name].tobytes() == array.tobytes()


def test_types_without_whole_bytes_are_refused(client: Client) -> None:
    array = np.zeros(4, ml_dtypes.float4_e2m1fn)
    with pytest.raises(InvalidArgumentError) as caught:
        client.compress({"x": array})
    assert (caught.value.reason, caught.value.tensor) == ("UNSUPPORTED_DTYPE", "x")


@pytest.mark.parametrize("dtype", [*INTEGERS, "F4", "F99", "f32"])
def test_a_type_that_the_codec_does_not_take_is_damage(client: Client, dtype: str) -> None:
    source = Tensor("x", "F16", (4,), bytes(8))
    data, _ = encoder.encode_tensor(source, 32)
    digest = encoder.EncodedTensor(source, data, b"", "").digest
    artefact = encoder.assemble(
        [("x", data)],
        {
            "kvcompress.checksum": f"xxh3-128:{encoder.ZEROS}",
            "kvcompress.format": "1",
            "kvcompress.layout": "bhtd",
            "kvcompress.tensors": f"int4:32 {dtype} 4 - {digest}",
        },
    )
    with pytest.raises(DataLossError) as caught:
        client.decompress(artefact)
    assert caught.value.tensor == "x"
    with pytest.raises(payload.PayloadError) as offline:
        payload.read(artefact)
    assert (offline.value.code, offline.value.tensor) == ("DATA_LOSS", "x")


def test_the_command_line(run: Run, tmp_path: Path) -> None:
    file = caches.attached(tokens=40)
    (tmp_path / "in").write_bytes(file)
    answer = succeed(run("-input", "in", "-output", "out", "-codec", "int8", "-verbose"))
    found = {each["name"]: each for each in answer["tensors"]}
    for each in read(file)[0]:
        number = each.dtype in NUMBERS
        assert found[each.name]["codec"] == ("int8:64" if number else "lossless")
        assert found[each.name]["dtype"] == each.dtype
        assert number or found[each.name]["quality_level"] == "EXCELLENT"
    succeed(run("-decompress", "-input", "out", "-output", "back"))
    for before, after in zip(read(file)[0], read((tmp_path / "back").read_bytes())[0], strict=True):
        assert before.dtype in NUMBERS or after == before
    info = json.loads(run("-info", "out").stdout)
    sizes = {each["name"]: each["original_size_bytes"] for each in info["tensors"]}
    assert sizes == {each.name: len(each.data) for each in read(file)[0]}


def test_what_exact_means() -> None:
    """The oracle itself: all 256 values of both FP8 types, by their definition."""
    every = bytes(range(256))
    for dtype, mantissa, bias in (("F8_E4M3", 3, 7), ("F8_E5M2", 2, 15)):
        values = exact(dtype, every)
        for code in range(128):
            exponent, fraction = code >> mantissa, code % 2**mantissa / 2**mantissa
            if not math.isfinite(values[code]):
                assert code > 0x7B
                continue
            want = (
                fraction * 2.0 ** (1 - bias)
                if exponent == 0
                else (1 + fraction) * 2.0 ** (exponent - bias)
            )
            assert (values[code], values[code + 128]) == (want, -want)
