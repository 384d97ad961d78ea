# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The metrics of quality.proto, in double precision with exactly rounded sums."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.source import F32, F64


@dataclass(frozen=True)
class Metrics:
    """Fields as in kvcompress.v1.QualityMetrics; None where the message leaves one unset."""

    elements: int
    mse: float
    rmse: float
    mae: float
    max_error: float
    snr_db: float | None
    psnr_db: float | None
    cosine_similarity: float


def measure(pairs: Iterable[tuple[F32 | F64, F32 | F64]]) -> Metrics:
    """Measures source values against decoded ones, pooled over tensors.

    Args:
        pairs: Flattened source values x and decoded values y of each tensor.
    """
    empty = np.zeros(0)
    both = list(pairs)
    x = np.concatenate([empty, *(pair[0].astype(np.float64) for pair in both)])
    y = np.concatenate([empty, *(pair[1].astype(np.float64) for pair in both)])
    e, n = y - x, x.size
    x2, y2, xy, e2 = _sum(x * x), _sum(y * y), _sum(x * y), _sum(e * e)
    exact = not e.any()
    rmse = math.sqrt(e2 / n) if n else 0.0
    if exact:
        cosine = 1.0
    elif x2 == 0 or y2 == 0:
        cosine = 0.0
    else:
        cosine = xy / (math.sqrt(x2) * math.sqrt(y2))
    return Metrics(
        elements=n,
        mse=e2 / n if n else 0.0,
        rmse=rmse,
        mae=_sum(np.abs(e)) / n if n else 0.0,
        max_error=float(np.abs(e).max()) if n else 0.0,
        snr_db=None if exact else 10 * math.log10(x2 / e2),
        psnr_db=None if exact else 20 * math.log10(float(np.abs(x).max()) / rmse),
        cosine_similarity=cosine,
    )


def level(metrics: Metrics) -> str:
    """Returns the best level of quality.proto whose bounds both hold."""
    snr = math.inf if metrics.snr_db is None else metrics.snr_db
    for name, rmse_bound, snr_bound in (
        ("EXCELLENT", 0.01, 40),
        ("GOOD", 0.05, 30),
        ("ACCEPTABLE", 0.10, 18),
    ):
        if metrics.rmse < rmse_bound and snr > snr_bound:
            return name
    return "POOR"


def _sum(values: npt.NDArray[Any]) -> float:
    """Adds without rounding until the end."""
    return math.fsum(values.tolist())


@dataclass(frozen=True)
class TokenMetrics:
    """The metrics that only tensors [batch, heads, tokens, head_dim] have."""

    centred_snr_db: float | None
    token_snr_db_p1: float | None
    first_token_rmse: float


def measure_tokens(shape: tuple[int, ...], x: F32 | F64, y: F32 | F64) -> TokenMetrics:
    """Measures one tensor of keys.

    Args:
        shape: [batch, heads, tokens, head_dim], none of them 0.
        x: Flattened source values.
        y: Flattened decoded values.
    """
    source = x.astype(np.float64).reshape(shape)
    error = y.astype(np.float64).reshape(shape) - source
    centred = source - source.mean(axis=2, keepdims=True)
    e2 = _sum(error.ravel() ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = 10 * np.log10((source**2).sum(axis=3) / (error**2).sum(axis=3)).ravel()
    ratios[(error**2).sum(axis=3).ravel() == 0] = np.inf
    percentile = float(np.sort(ratios)[math.ceil(ratios.size / 100) - 1])
    signal = _sum(centred.ravel() ** 2)
    centred_snr = max(-300.0, 10 * math.log10(signal / e2)) if e2 and signal else -300.0
    return TokenMetrics(
        centred_snr_db=centred_snr if e2 else None,
        token_snr_db_p1=None if math.isinf(percentile) else max(-300.0, percentile),
        first_token_rmse=math.sqrt(float((error[:, :, 0] ** 2).mean())),
    )
