# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The service's bytes and numbers are the oracle's."""

import math
from dataclasses import fields
from pathlib import Path

import pytest
import safetensors

from kvcompress import (
    Client,
    CompressionReport,
    InvalidArgumentError,
    TensorReport,
    payload,
)
from oracle import caches, encoder, metrics, source
from oracle.fixtures import SAMPLE

CACHES = caches.all_caches()
GROUPED = [("int4", 32), ("int4", 64), ("int4", 128), ("int8", 64), ("int4-hadamard", 64)]
GROUPED += [("int4-kivi", 32), ("int4-kivi", 64), ("sparse", 64), ("sparse", 128)]
METRICS = tuple(field.name for field in fields(metrics.Metrics) if field.name != "elements")


def check_metrics(got: object, want: metrics.Metrics) -> None:
    """Compares metrics, to 1e-9 of the value and what doubles resolve near zero."""
    assert getattr(got, "elements") == want.elements  # noqa: B009
    for name in METRICS:
        mine, theirs = getattr(want, name), getattr(got, name)
        if mine is None or theirs is None:
            assert mine is theirs, name
        else:
            assert theirs == pytest.approx(mine, rel=1e-9, abs=1e-12 if "db" in name else 0), name


def check_tensor(got: TensorReport, want: encoder.EncodedTensor, codec: str) -> None:
    """Compares the report on one tensor."""
    role, layer = encoder.role_of(want.source.name)[0], encoder.role_of(want.source.name)[1:]
    assert got.name == want.source.name
    assert got.dtype == want.source.dtype
    assert got.shape == want.source.shape
    assert got.role == {"k": "key", "v": "value", "-": None}[role]
    assert got.layer == (int(layer) if layer else None)
    number = want.source.dtype in source.NUMBERS
    assert got.codec == (codec if number else "lossless")
    assert got.original_size_bytes == len(want.source.data)
    assert got.compressed_size_bytes == len(want.payload)
    count = len(want.source.data) // source.ITEM_SIZE[want.source.dtype]
    assert got.bits_per_value == pytest.approx(8 * len(want.payload) / count if count else 0)
    assert got.digest == want.digest
    measured = metrics.measure([(want.source.exact, want.exact)])
    if not number:
        assert got.metrics.elements == count
        assert got.verdict.passed
        assert (got.metrics.max_error, got.metrics.snr_db) == (0, None)
        return
    check_metrics(got.metrics, measured)
    assert got.verdict.level.value == metrics.level(measured)
    assert got.verdict.passed == passes(measured)
    assert (not got.verdict.violations) == got.verdict.passed


def passes(measured: metrics.Metrics) -> bool:
    """Judges by the default thresholds of quality.proto."""
    snr = math.inf if measured.snr_db is None else measured.snr_db
    return (
        measured.rmse < 0.10
        and measured.max_error < 0.5
        and snr > 18
        and measured.cosine_similarity > 0.99
    )


def _snr(tensor: TensorReport) -> float:
    """By which a report finds its worst tensor."""
    measured = tensor.metrics
    found = measured.snr_db if measured.centred_snr_db is None else measured.centred_snr_db
    assert found is not None
    return found


def check_report(got: CompressionReport, want: encoder.Artefact, codec: str) -> None:
    """Compares the report on a cache that lists every tensor."""
    pooled = metrics.measure((each.source.exact, each.exact) for each in want.tensors)
    elements = sum(
        len(each.source.data) // source.ITEM_SIZE[each.source.dtype] for each in want.tensors
    )
    assert got.codec == codec
    assert got.original_size_bytes == sum(len(each.source.data) for each in want.tensors)
    assert got.compressed_size_bytes == len(want.data)
    assert got.compression_ratio == pytest.approx(2 * elements / len(want.data))
    bits = 8 * len(want.data) / elements if elements else 0
    assert got.bits_per_value == pytest.approx(bits)
    check_metrics(got.metrics, pooled)
    assert got.verdict.level.value == metrics.level(pooled)
    assert got.verdict.passed == passes(pooled)
    assert got.tensor_count == len(got.tensors) == len(want.tensors)
    for mine, theirs in zip(want.tensors, got.tensors, strict=True):
        check_tensor(theirs, mine, codec)
    assert got.tensors_failed == sum(not each.verdict.passed for each in got.tensors)
    measured = [each for each in got.tensors if each.metrics.snr_db is not None]
    if measured:
        assert got.worst_tensor is not None
        keys = [each for each in measured if each.metrics.centred_snr_db is not None]
        lowest = min(_snr(each) for each in keys or measured)
        assert _snr(got.worst_tensor) == lowest
        assert got.worst_tensor in (keys or measured)
    else:
        assert got.worst_tensor is None
    assert got.payload_digest == want.checksum


def refused_by_oracle(file: bytes, codec: str, group: int) -> str | None:
    """Names the tensor that the codec cannot hold: a rotation can gather too much."""
    try:
        encoder.encode(file, group, codec=codec)
    except encoder.RefusedError as refusal:
        return refusal.tensor
    return None


@pytest.mark.parametrize(("codec", "group"), GROUPED)
@pytest.mark.parametrize("name", CACHES)
def test_synthetic_cache(client: Client, name: str, codec: str, group: int) -> None:
    labels = {"model": "synthetic", "tenant": "ü", "a.b_c-d": ""}
    refusal = refused_by_oracle(CACHES[name], codec, group)
    if refusal is not None:
        with pytest.raises(InvalidArgumentError, match="SCALE_OVERFLOW") as refused:
            client.compress(CACHES[name], codec={"name": codec, "group_size": group})
        assert refused.value.tensor == refusal
        return
    want = encoder.encode(CACHES[name], group, labels, codec=codec)
    got = client.compress(
        CACHES[name], codec={"name": codec, "group_size": group}, labels=labels, reconstruct=True
    )
    assert got.artefact == want.data
    assert got.reconstructed == want.restored
    check_report(got.report, want, encoder.codec_field(codec, group))
    measured = client.measure(
        CACHES[name], codec={"name": codec, "group_size": group}, labels=labels
    )
    check_report(measured, want, encoder.codec_field(codec, group))
    back = client.decompress(want.data, expected_labels={"model": "synthetic"})
    assert back.safetensors == want.restored
    assert back.report.labels == labels
    assert back.report.payload_digest == want.checksum
    assert back.report.compressed_size_bytes == len(want.data)
    assert back.report.original_size_bytes == got.report.original_size_bytes
    assert back.report.output_size_bytes == len(want.restored)
    assert back.report.tensor_count == back.report.tensors_selected == len(want.tensors)
    assert back.report.format_version == 1


@pytest.mark.parametrize(("codec", "group"), GROUPED)
def test_sample(client: Client, sample: bytes, tmp_path: Path, codec: str, group: int) -> None:
    small, restored = tmp_path / "small.safetensors", tmp_path / "restored.safetensors"
    want = encoder.encode(sample, group, codec=codec)
    result = client.compress(SAMPLE, small, codec={"name": codec, "group_size": group})
    assert small.read_bytes() == want.data
    assert (result.path, result.artefact) == (small, None)
    check_report(result.report, want, encoder.codec_field(codec, group))
    assert small.stat().st_size == result.report.compressed_size_bytes
    back = client.decompress(small, restored)
    assert restored.read_bytes() == want.restored
    assert back.report.output_size_bytes == restored.stat().st_size
    arrays = payload.read(small)
    assert [array.tobytes() for array in arrays.values()] == [each.decoded for each in want.tensors]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "restored.safetensors",
        "small.safetensors",
    ]


def test_sample_ratio(client: Client, sample: bytes) -> None:
    report = client.compress(sample).report
    assert report.compression_ratio >= 3.7
    assert report.compression_ratio == 2 * report.metrics.elements / report.compressed_size_bytes


def test_sample_opens_with_safetensors(client: Client, tmp_path: Path) -> None:
    small, restored = tmp_path / "small.safetensors", tmp_path / "restored.safetensors"
    client.compress(SAMPLE, small)
    client.decompress(small, restored)
    with (
        safetensors.safe_open(SAMPLE, framework="np") as before,
        safetensors.safe_open(small, framework="np") as between,
        safetensors.safe_open(restored, framework="np") as after,
    ):
        names = before.offset_keys()
        assert between.offset_keys() == after.offset_keys() == names
        assert after.metadata() == before.metadata()
        assert before.metadata().items() <= between.metadata().items()
        for name in names:
            assert after.get_slice(name).get_shape() == before.get_slice(name).get_shape()
            assert after.get_slice(name).get_dtype() == before.get_slice(name).get_dtype()
            assert between.get_slice(name).get_dtype() == "U8"


@pytest.mark.parametrize("name", ["mixed", "scrambled", "shapes_BF16", "nothing"])
def test_metadata_and_names_survive_in_their_order(client: Client, name: str) -> None:
    tensors, metadata = source.read(CACHES[name])
    restored = client.decompress(client.compress(CACHES[name]).artefact or b"").safetensors
    assert restored is not None
    after, kept = source.read(restored)
    assert list(kept.items()) == list(metadata.items())
    assert [(each.name, each.dtype, each.shape) for each in after] == [
        (each.name, each.dtype, each.shape) for each in tensors
    ]


def test_decompressing_twice_changes_nothing(client: Client) -> None:
    once = client.decompress(client.compress(CACHES["mixed"]).artefact or b"").safetensors
    assert once is not None
    again = client.compress(once, reconstruct=True).reconstructed
    assert [each.name for each in source.read(again or b"")[0]] == [
        each.name for each in source.read(once)[0]
    ]
