# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The metrics of tokens are those of NumPy, tensor by tensor and pooled."""

import math

import numpy as np
import pytest

from kvcompress import Client, InvalidArgumentError, Metrics, Thresholds
from oracle import encoder
from oracle.metrics import TokenMetrics, measure_tokens
from oracle.source import NUMBERS, Tensor, read, tensor, write


def check(got: Metrics, want: TokenMetrics, *, key: bool) -> None:
    """Compares; per-token ratios are kept in single precision."""
    assert got.centred_snr_db == (pytest.approx(want.centred_snr_db, rel=1e-9) if key else None)
    assert got.token_snr_db_p1 == pytest.approx(want.token_snr_db_p1, rel=1e-6)
    assert got.first_token_rmse == pytest.approx(want.first_token_rmse, rel=1e-9)


def test_sample(client: Client, sample: bytes) -> None:
    report = client.compress(sample, codec="int4").report
    lowest, signal, noise = math.inf, 0.0, 0.0
    for got, each in zip(report.tensors, encoder.encode(sample).tensors, strict=True):
        want = measure_tokens(each.source.shape, each.source.exact, each.exact)
        key = got.role == "key"
        check(got.metrics, want, key=key)
        assert want.token_snr_db_p1 is not None
        assert want.centred_snr_db is not None
        lowest = min(lowest, want.token_snr_db_p1)
        if key:
            error = got.metrics.mse * got.metrics.elements
            noise += error
            signal += error * 10 ** (want.centred_snr_db / 10)
    assert report.metrics.token_snr_db_p1 == pytest.approx(lowest, rel=1e-6)
    assert report.metrics.centred_snr_db == pytest.approx(10 * math.log10(signal / noise))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_small_shapes(client: Client, dtype: str) -> None:
    rng = np.random.default_rng(5)
    shapes = [(2, 3, 7, 5), (1, 1, 1, 64), (1, 2, 130, 1), (3, 1, 101, 2)]
    file = write(
        [
            tensor(f"layer_{i}_key", dtype, rng.standard_normal(shape) + 5, shape)
            for i, shape in enumerate(shapes)
        ]
    )
    report = client.compress(file, codec="int4").report
    for got, each in zip(report.tensors, encoder.encode(file).tensors, strict=True):
        want = measure_tokens(each.source.shape, each.source.exact, each.exact)
        check(got.metrics, want, key=True)


def test_other_tensors_have_none(client: Client) -> None:
    rng = np.random.default_rng(6)
    file = write([tensor("layer_0_key", "F32", rng.standard_normal((4, 64)), (4, 64))])
    metrics = client.compress(file, codec="int4").report.metrics
    assert metrics.centred_snr_db is metrics.token_snr_db_p1 is metrics.first_token_rmse is None


BOUNDS = Thresholds(min_centred_snr_db=-300, min_token_snr_db_p1=-300)


@pytest.mark.parametrize("shape", [(4, 64), (1, 1, 1, 65537)])
def test_bounds_on_what_a_shape_has_not_do_not_hold(client: Client, shape: tuple[int, ...]) -> None:
    """Nobody measured whether they do; what is exact holds them, and `auto` finds it."""
    rng = np.random.default_rng(7)
    roles = {"layer_0_key": 2, "layer_0_value": 1, "other": 0}
    values = 0.1 * rng.standard_normal(shape)
    file = write([tensor(name, "F32", values, shape) for name in roles])
    report = client.measure(file, thresholds=BOUNDS, codec="int4")
    assert [len(each.verdict.violations) for each in report.tensors] == list(roles.values())
    assert [each.verdict.passed for each in report.tensors] == [False, False, True]
    assert report.tensors_failed == 2
    assert [each.split()[0] for each in report.verdict.violations] == [
        "centred_snr_db",
        "token_snr_db_p1",
    ]
    assert all("not known for the shape" in each for each in report.verdict.violations)
    for codec in ("lossless", "auto"):
        exact = client.measure(file, codec=codec, thresholds=BOUNDS)
        assert exact.verdict.passed
        assert exact.tensors_failed == 0
        assert {each.codec.split(":")[0] for each in exact.tensors if each.role} == {"lossless"}


def test_bounds_are_named_when_they_do_not_hold(client: Client, sample: bytes) -> None:
    bounds = Thresholds(min_centred_snr_db=40, min_token_snr_db_p1=39)
    violations = " ".join(
        client.measure(sample, thresholds=bounds, codec="int4").verdict.violations
    )
    assert "centred_snr_db" in violations
    assert "is not above 40" in violations
    assert "token_snr_db_p1" in violations
    with pytest.raises(InvalidArgumentError, match="min_centred_snr_db"):
        client.measure(sample, thresholds=Thresholds(min_centred_snr_db=math.nan), codec="int4")


def centred_snr_db(source: Tensor, decoded: Tensor) -> float:
    """In two passes, with more digits than binary64 has."""
    x = source.values.reshape(source.shape).astype(np.longdouble)
    error = decoded.values.reshape(source.shape).astype(np.longdouble) - x
    centred = x - x.mean(axis=2, keepdims=True)
    return float(10 * np.log10((centred**2).sum() / (error**2).sum()))


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("tokens", [2, 100, 3000, 100_000])
def test_a_spread_far_below_the_mean_is_measured(client: Client, dtype: str, tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    shape = (1, 2, tokens, 4)
    tensors = []
    for i, mean in enumerate((0, 1, 1e2, 1e3, 1e4, 1e5, 1e6)):
        spread = 1 if dtype == "F32" else max(1, mean / 100)
        values = mean + spread * rng.standard_normal(shape)
        values[0, 1, :, 3] = mean
        values[0, 0, tokens // 2, 1] = 0
        scale = 1e-2 if dtype == "F16" else 1
        tensors.append(tensor(f"layer_{i}_key", dtype, scale * values, shape))
    answer = client.compress(write(tensors), codec="int8")
    restored = client.decompress(answer.artefact or b"").safetensors
    decoded, _ = read(restored or b"")
    for got, before, after in zip(answer.report.tensors, tensors, decoded, strict=True):
        want = centred_snr_db(before, after)
        assert got.metrics.centred_snr_db == pytest.approx(want, abs=1e-6)
