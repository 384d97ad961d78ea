# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Places the steps of presets where the model notices a given part of what it does of int4."""

import bisect
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.profiles._model import Cache, LanguageModel, divergence
from kvcompress.profiles._native import read_cache, restored

# Parts of int4's divergence. On text of other kinds than that of the training it was up to a third
# more: presets promise 25 %, 60 % and less than 100 %, and leave headroom for that.
SHARES = {"high": 0.21, "max": 0.52, "ultra": 0.68}
# Steps that are tried, in spreads of a tensor after the metric.
LADDER = tuple(0.35 * 2 ** (i / 2) for i in range(9))
_TINY = 1e-30

Sums = defaultdict[str, float]


@dataclass(frozen=True)
class Window:
    """A text that was cut in two.

    Attributes:
        source: The cache of its first part.
        fed: The tokens of the second.
        base: What the model predicts behind each token fed, [tokens, vocabulary].
    """

    source: Path
    fed: tuple[int, ...]
    base: torch.Tensor


@dataclass(frozen=True)
class Measured:
    """Means over windows.

    Attributes:
        ratio: Of sizes.
        divergence: Of predictions.
        snr_db: Of each tensor, by its name.
    """

    ratio: float
    divergence: float
    snr_db: Mapping[str, float]


class Judge:
    """Measures codecs by what a model predicts with a restored cache."""

    def __init__(self, model: LanguageModel, windows: Sequence[Window]) -> None:
        """Takes the model and the windows, at least one."""
        self._model = model
        self._windows = windows

    def measure(self, codec: Sequence[str | Path], profile: Path | None = None) -> Measured:
        """Measures a codec, given as flags of kv-compress.

        Raises:
            NativeError: kv-compress fails.
        """
        ratios, divergences = [], []
        energies: Sums = defaultdict(float)
        errors: Sums = defaultdict(float)
        for window in self._windows:
            with tempfile.TemporaryDirectory(dir=window.source.parent) as folder:
                back, ratio = restored(window.source, codec, profile, Path(folder))
                cache: Cache = read_cache(back, self._model.model.device)
            _add_errors(
                read_cache(window.source, self._model.model.device), cache, energies, errors
            )
            with torch.no_grad():
                changed = self._model.predict(cache, window.fed)
            ratios.append(ratio)
            divergences.append(divergence(window.base, changed))
        count = len(self._windows)
        snr_db = {
            name: 10 * math.log10(max(energies[name], _TINY) / max(errors[name], _TINY))
            for name in energies
        }
        return Measured(sum(ratios) / count, sum(divergences) / count, snr_db)


def _add_errors(source: Cache, cache: Cache, energies: Sums, errors: Sums) -> None:
    """Adds the squares of each tensor, and those of what it lost."""
    for layer, pairs in enumerate(zip(source, cache, strict=True)):
        for role, one, other in zip(("key", "value"), *pairs, strict=True):
            name = f"layer_{layer}_{role}"
            energies[name] += float(one.square().sum())
            errors[name] += float((one - other).square().sum())


def find_step(
    target: float, steps: Sequence[float], divergence_of: Callable[[int], float]
) -> float:
    """Finds the step whose divergence is the target, between steps that are measured.

    Args:
        target: The divergence that is wanted.
        steps: Rising.
        divergence_of: Measures the step of an index; asked for few of them.

    Returns:
        By interpolation of logarithms; the first or the last step where the target is beyond.
    """
    above = bisect.bisect_left(range(len(steps)), target, key=divergence_of)
    if above in (0, len(steps)):
        return steps[min(above, len(steps) - 1)]
    low, high = (math.log(max(divergence_of(i), 1e-12)) for i in (above - 1, above))
    part = (math.log(target) - low) / (high - low) if high > low else 0.0
    return steps[above - 1] * math.pow(steps[above] / steps[above - 1], min(max(part, 0.0), 1.0))
