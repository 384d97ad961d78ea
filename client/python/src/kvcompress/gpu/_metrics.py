# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Quality of what was encoded, as the service measures it: sums in binary64 on the device."""

import math
from collections.abc import Iterable

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.v1 import quality_pb2

_ELEMENTS = 1 << 24  # measured at once
_MAX_CHANNELS = 65536  # of tensors whose tokens are measured
_LEAST_DB = -300.0
_LEVELS = (
    (quality_pb2.QUALITY_LEVEL_EXCELLENT, 0.01, 40),
    (quality_pb2.QUALITY_LEVEL_GOOD, 0.05, 30),
    (quality_pb2.QUALITY_LEVEL_ACCEPTABLE, 0.10, 18),
)
# Metric, bound, limit, and whether that is an upper one.
_BOUNDS = (
    ("rmse", "max_rmse", 0.10, True),
    ("max_error", "max_error", 0.5, True),
    ("snr_db", "min_snr_db", 18.0, False),
    ("cosine_similarity", "min_cosine_similarity", 0.99, False),
)


class Sums:
    """What is summed of one tensor.

    Args:
        source: The elements, of any strides.
        decoded: Those that the artefact restores, in the same shape.
        key: Whether the tensor has keys.
    """

    def __init__(self, source: torch.Tensor, decoded: torch.Tensor, key: bool) -> None:
        """Launches the sums."""
        self.elements = source.numel()
        self.tokens = source.dim() == 4 and source.shape[3] <= _MAX_CHANNELS
        self.tokens = self.tokens and self.elements > 0
        self.key = key and self.tokens
        self.first = source.shape[0] * source.shape[1] * source.shape[3] if self.tokens else 0
        shape = source.shape if self.tokens else (1, 1, max(1, self.elements), 1)
        x = source if self.tokens else source.reshape(shape if self.elements else (1, 1, 0, 1))
        y = decoded.reshape(x.shape)
        heads = max(1, _ELEMENTS // max(1, shape[2] * shape[3]))
        parts = [
            self._part(x[batch, head : head + heads], y[batch, head : head + heads])
            for batch in range(x.shape[0])
            for head in range(0, x.shape[1], heads)
        ]
        sums = torch.stack([part for part, _ in parts])
        rows = torch.cat([ratio for _, ratio in parts])
        self.row = torch.cat(
            [sums[:, :7].sum(0), sums[:, 7:].amax(0), self._percentile(rows).reshape(1)]
        )

    def _part(
        self, source: torch.Tensor, decoded: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of some heads, and the signal-to-noise ratio of each token."""
        x, y = source.to(torch.float64), decoded.to(torch.float64)
        error = y - x
        noise, signal = (error * error).sum(-1), (x * x).sum(-1)
        zero = x.new_zeros(())
        centred = ((x - x.mean(1, keepdim=True)) ** 2).sum() if self.key else zero
        first = noise[:, 0].sum() if self.tokens else zero
        size = error.abs()
        largest = [size.max(), x.abs().max()] if x.numel() else [zero, zero]
        sums = [signal.sum(), (y * y).sum(), (x * y).sum(), noise.sum(), size.sum(), centred, first]
        ratio = torch.where(noise == 0, math.inf, 10 * torch.log10(signal / noise))
        return torch.stack([*sums, *largest]), ratio.clamp_min(_LEAST_DB).reshape(-1)

    def _percentile(self, rows: torch.Tensor) -> torch.Tensor:
        """The 1st percentile of the tokens by nearest rank."""
        if not self.tokens:
            return rows.new_full((), math.inf)
        return rows.kthvalue((len(rows) + 99) // 100).values


def metrics_of(tensors: Iterable[tuple[Sums, list[float]]]) -> quality_pb2.QualityMetrics:
    """The metrics of tensors together, from their sums and the rows of these on the host."""
    elements = keys = first_count = 0
    total, largest, percentile, key_noise = [0.0] * 7, [0.0, 0.0], math.inf, 0.0
    for sums, row in tensors:
        elements += sums.elements
        first_count += sums.first
        keys += sums.key
        key_noise += row[3] if sums.key else 0.0
        total = [a + b for a, b in zip(total, row[:7], strict=True)]
        largest = [max(a, b) for a, b in zip(largest, row[7:9], strict=True)]
        percentile = min(percentile, row[9])
    x2, y2, xy, e2, size, centred, first = total
    count = max(1, elements)
    found = quality_pb2.QualityMetrics(elements=elements, mse=e2 / count, mae=size / count)
    found.rmse, found.max_error = math.sqrt(found.mse), largest[0]
    if e2 > 0:
        found.snr_db = 10 * math.log10(x2 / e2) if x2 else -math.inf
        found.psnr_db = 20 * math.log10(largest[1] / found.rmse) if largest[1] else -math.inf
        found.cosine_similarity = xy / (math.sqrt(x2) * math.sqrt(y2)) if x2 and y2 else 0.0
    else:
        found.cosine_similarity = 1.0
    if keys and key_noise > 0:
        ratio = 10 * math.log10(centred / key_noise) if centred else _LEAST_DB
        found.centred_snr_db = max(_LEAST_DB, ratio)
    if not math.isinf(percentile):
        found.token_snr_db_p1 = percentile
    if first_count:
        found.first_token_rmse = math.sqrt(first / first_count)
    return found


def verdict_of(metrics: quality_pb2.QualityMetrics) -> quality_pb2.QualityVerdict:
    """The judgement under the default thresholds."""
    verdict = quality_pb2.QualityVerdict(level=quality_pb2.QUALITY_LEVEL_POOR)
    for name, bound, limit, upper in _BOUNDS:
        if name == "snr_db" and not metrics.HasField("snr_db"):
            continue
        value = getattr(metrics, name)
        if (value < limit) if upper else (value > limit):
            continue
        verdict.missed.add(metric=name, value=value, bound=bound, limit=limit)
        side = "below" if upper else "above"
        verdict.violations.append(f"{name} {value:.6g} is not {side} {limit:.6g}")
    verdict.passed = not verdict.missed
    for level, rmse, snr in reversed(_LEVELS):
        if metrics.rmse < rmse and (not metrics.HasField("snr_db") or metrics.snr_db > snr):
            verdict.level = level
    return verdict
