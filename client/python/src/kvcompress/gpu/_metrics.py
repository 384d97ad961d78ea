# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Quality of what was encoded, as the service measures it: sums in binary64 on the device."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _metrics_kernels as kernels
from kvcompress.gpu._upload import send_all
from kvcompress.v1 import quality_pb2

_TILE = 4096  # elements that a program compares at once
_STEPS = 16  # how often, where a row of a head is not longer than a tile
_MOST_COLUMNS = 512  # of a tile
_ROWS = 64  # tiles that are added at once
_MAX_CHANNELS = 65536  # of tensors whose tokens are measured
_EXACT = 2.0**-44  # of the sum of squares: what is left of it below is rounding
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


class Pair(NamedTuple):
    """A tensor, and what an artefact of it restores, in the same shape and type."""

    source: torch.Tensor
    restored: torch.Tensor
    dtype: str
    key: bool

    @property
    def by_token(self) -> bool:
        """Whether its tokens are measured."""
        shape = self.source.shape
        return len(shape) == 4 and 0 not in shape and shape[3] <= _MAX_CHANNELS


class Sums(NamedTuple):
    """What was summed of a tensor.

    Attributes:
        elements: Of the tensor.
        key: Whether it has keys, of which `centred` is.
        first: Elements of its first tokens.
        totals: As compare_kernel sums them: the last two are the largest.
        centred: Of squares without the mean of each channel of a head.
        percentile: Of the ratio of signal and noise of its tokens, the 1st by nearest rank.
    """

    elements: int
    key: bool
    first: int
    totals: list[float]
    centred: float
    percentile: float


def compare(pairs: Sequence[Pair]) -> list[Sums]:
    """Sums what reports need of tensors, which are on one device."""
    found: dict[int, Sums] = {}
    forms: dict[tuple[str, int, bool], list[int]] = {}
    for number, pair in enumerate(pairs):
        channels = pair.source.shape[3] if pair.by_token else 1
        width = min(_MOST_COLUMNS, _power(channels))
        forms.setdefault((pair.dtype, width, channels > width), []).append(number)
    for (dtype, width, long), numbers in forms.items():
        steps = 1 if long else _STEPS
        sums = _Comparison([pairs[i] for i in numbers], dtype, width, steps).run()
        found |= dict(zip(numbers, sums, strict=True))
    return [found[number] for number in range(len(pairs))]


def _power(size: int) -> int:
    """The least power of two from a size on."""
    return 1 << max(0, size - 1).bit_length()


class _Comparison:
    """Pairs of one type, whose tiles have one width."""

    def __init__(self, pairs: Sequence[Pair], dtype: str, width: int, steps: int) -> None:
        """Lists tensors, tiles, and heads of keys."""
        self.pairs, self.dtype, self.width, self.steps = pairs, dtype, width, steps
        self.rows = steps * (_TILE // width)
        self.device = pairs[0].source.device
        self.kept = [self._views(pair) for pair in pairs]
        tensors, tiles, heads, ends = [], [], [], []
        ratio = column = tile = 0
        for number, (pair, (x, y)) in enumerate(zip(pairs, self.kept, strict=True)):
            batches, each, tokens, channels = x.shape
            tensors.append([x.data_ptr(), y.data_ptr(), *x.shape[1:], *x.stride(), *y.stride()])
            count, per_head = batches * each, -(-tokens // self.rows)
            head, within = np.divmod(np.arange(count * per_head), max(1, per_head))
            table = np.full((len(head), 5), -1)
            table[:, 0], table[:, 1], table[:, 2] = number, head, within * self.rows
            if pair.by_token:
                table[:, 3] = ratio + head * tokens + table[:, 2]
                ratio += count * tokens
            if pair.by_token and pair.key:
                table[:, 4] = column + channels * np.arange(len(head))
                begins = column + channels * per_head * np.arange(count)
                sizes = np.tile([per_head, channels, tokens], (count, 1))
                heads.append(np.hstack([begins[:, None], sizes]))
                column += channels * len(head)
            tiles.append(table)
            ends.append([tile, tile := tile + len(head)])
        self.tensors = np.array(tensors, np.int64)
        self.tiles, self.ends = np.concatenate(tiles), np.array(ends, np.int64)
        self.heads = np.concatenate([np.zeros((0, 4), np.int64), *heads])
        self.ratios, self.columns = ratio, column

    @staticmethod
    def _views(pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
        """Both as [batches, heads, tokens, channels]."""
        if pair.by_token:
            return pair.source, pair.restored
        return pair.source.reshape(1, 1, -1, 1), pair.restored.reshape(1, 1, -1, 1)

    @property
    def aligned(self) -> bool:
        """Whether eight channels are read at once."""
        strides = self.tensors[:, 5:].reshape(-1, 4)
        return bool(
            (self.tensors[:, 4] % self.width == 0).all()
            and (strides[:, 3] == 1).all()
            and (strides[:, :3] % 8 == 0).all()
            and (self.tensors[:, :2] % 16 == 0).all()
        )

    def run(self) -> list[Sums]:
        """Launches the kernels, and waits."""
        tables = [self.tensors, self.tiles, self.ends, self.heads]
        tensors, tiles, ends, heads = send_all(tables, self.device)

        def empty(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=torch.float64, device=self.device)

        sums, totals = empty(len(tiles), 8), empty(len(tensors), 8)
        ratios, columns, means = empty(self.ratios), empty(self.columns), empty(len(heads))
        if len(tiles):
            kernels.compare_kernel[(len(tiles),)](
                *(tensors, tiles, sums, ratios, columns),
                BT=self.rows // self.steps,
                BD=self.width,
                STEPS=self.steps,
                DTYPE=self.dtype,
                ALIGNED=self.aligned,
                num_warps=4,
                enable_fp_fusion=False,
            )
        kernels.total_kernel[(len(tensors),)](sums, ends, totals, BLOCK=_ROWS, num_warps=4)
        if len(heads):
            kernels.means_kernel[(len(heads),)](
                *(columns, heads, means), BLOCK=_ROWS, BD=min(self.width, 128), num_warps=4
            )
        percentiles = self._percentiles(ratios)
        numbers = torch.cat([totals.reshape(-1), means, *percentiles]).tolist()
        return self._sums(numbers)

    def _percentiles(self, ratios: torch.Tensor) -> list[torch.Tensor]:
        """The 1st percentile of each tensor whose tokens are measured; of like ones at once."""
        counts = [math.prod(x.shape[:3]) for x, _ in self._measured()]
        if len(set(counts)) == 1:
            ratios = ratios.reshape(len(counts), -1)
            return [ratios.kthvalue((counts[0] + 99) // 100, 1).values]
        parts = ratios.split(counts)
        return [each.kthvalue((len(each) + 99) // 100).values.reshape(1) for each in parts]

    def _measured(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The views of those whose tokens are measured."""
        both = zip(self.pairs, self.kept, strict=True)
        return [views for pair, views in both if pair.by_token]

    def _sums(self, numbers: list[float]) -> list[Sums]:
        """Sorts what came from the device: totals, means of heads, and percentiles."""
        found, mean = [], 8 * len(self.pairs)
        percentile = mean + len(self.heads)
        for number, (pair, (x, _)) in enumerate(zip(self.pairs, self.kept, strict=True)):
            totals = numbers[8 * number : 8 * number + 8]
            key, centred, ratio, first = pair.key and pair.by_token, 0.0, math.inf, 0
            if key:
                count = x.shape[0] * x.shape[1]
                left = totals[0] - math.fsum(numbers[mean : mean + count])
                centred = left if left > _EXACT * totals[0] else 0.0
                mean += count
            if pair.by_token:
                ratio = numbers[percentile]
                first = x.shape[0] * x.shape[1] * x.shape[3]
                percentile += 1
            found.append(Sums(x.numel(), key, first, totals, centred, ratio))
        return found


def metrics_of(tensors: Iterable[Sums]) -> quality_pb2.QualityMetrics:
    """The metrics of tensors together."""
    elements = keys = first_count = 0
    total, largest, percentile = [0.0] * 6, [0.0, 0.0], math.inf
    centred = key_noise = 0.0
    for sums in tensors:
        elements += sums.elements
        first_count += sums.first
        keys += sums.key
        key_noise += sums.totals[3] if sums.key else 0.0
        centred += sums.centred
        total = [a + b for a, b in zip(total, sums.totals[:6], strict=True)]
        largest = [max(a, b) for a, b in zip(largest, sums.totals[6:], strict=True)]
        percentile = min(percentile, sums.percentile)
    x2, y2, xy, e2, size, first = total
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
        ratio = 10 * math.log10(percentile) if percentile else _LEAST_DB
        found.token_snr_db_p1 = max(_LEAST_DB, ratio)
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
