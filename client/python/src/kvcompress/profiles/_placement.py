# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Places the steps of presets where the model notices a given part of what it does of int4."""

import bisect
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.profiles._model import Cache, LanguageModel, divergence
from kvcompress.profiles._native import read_cache, restored

# The most that a preset may cost on any kind of text, as part of int4's divergence.
SHARES = {"high": 0.4, "max": 0.75, "ultra": 1.0}
# Steps that are tried, in spreads of a tensor after the metric.
LADDER = tuple(0.35 * 2 ** (i / 2) for i in range(9))
# Standard errors that a bound is above its share: an interval of 95 % that is open below.
_STANDARD_ERRORS = 1.65
# Times the median over windows that int4's divergence of a window counts at most. On a window where
# int4 breaks the model any preset looks harmless, and its kind would have no other windows.
_MOST_REFERENCE = 5.0
_TINY = 1e-30

Sums = defaultdict[str, float]


@dataclass(frozen=True)
class Window:
    """A text that was cut in two.

    Attributes:
        source: The cache of its first part.
        fed: The tokens of the second.
        base: What the model predicts behind each token fed, [tokens, vocabulary].
        kind: The kind of the text.
    """

    source: Path
    fed: tuple[int, ...]
    base: torch.Tensor
    kind: str = ""


@dataclass(frozen=True)
class Measured:
    """What a codec did to windows.

    Attributes:
        ratios: Of sizes, of each window.
        divergences: Of predictions, of each window.
        snr_db: Of each tensor over all windows, by its name.
    """

    ratios: list[float]
    divergences: list[float]
    snr_db: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """The mean over windows."""
        return sum(self.ratios) / len(self.ratios)

    @property
    def divergence(self) -> float:
        """The mean over windows."""
        return sum(self.divergences) / len(self.divergences)


class Judge:
    """Measures codecs by what a model predicts with a restored cache."""

    def __init__(self, model: LanguageModel, windows: Sequence[Window]) -> None:
        """Takes the model and the windows, at least one."""
        self._model = model
        self.windows = windows

    def measure(self, codec: Sequence[str | Path], profile: Path | None = None) -> Measured:
        """Measures a codec, given as flags of kv-compress.

        Raises:
            NativeError: kv-compress fails.
        """
        ratios, divergences = [], []
        energies: Sums = defaultdict(float)
        errors: Sums = defaultdict(float)
        for window in self.windows:
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
        snr_db = {
            name: 10 * math.log10(max(energies[name], _TINY) / max(errors[name], _TINY))
            for name in energies
        }
        return Measured(ratios, divergences, snr_db)


def _add_errors(source: Cache, cache: Cache, energies: Sums, errors: Sums) -> None:
    """Adds the squares of each tensor, and those of what it lost."""
    for layer, pairs in enumerate(zip(source, cache, strict=True)):
        for role, one, other in zip(("key", "value"), *pairs, strict=True):
            name = f"layer_{layer}_{role}"
            energies[name] += float(one.square().sum())
            errors[name] += float((one - other).square().sum())


def limited(reference: Sequence[float]) -> list[float]:
    """Returns int4's divergences, those of windows on which it breaks the model limited."""
    most = _MOST_REFERENCE * statistics.median(reference)
    return [min(each, most) for each in reference]


@dataclass(frozen=True)
class Shares:
    """What a codec's divergence is of int4's, by kind of text.

    Attributes:
        by_kind: The quotient of the means over a kind's windows.
        bounds: The same, 1.65 standard errors higher: the one-sided 95 % confidence bound.
    """

    by_kind: Mapping[str, float]
    bounds: Mapping[str, float]

    @property
    def least(self) -> float:
        """Of the kind that shows it least."""
        return min(self.by_kind.values())

    @property
    def most(self) -> float:
        """The highest bound."""
        return max(self.bounds.values())


def shares_of(
    windows: Sequence[Window], changed: Sequence[float], reference: Sequence[float]
) -> Shares:
    """Compares a codec's divergences with int4's, window by window.

    Bounds take the standard error of a quotient of means (Cochran, Sampling Techniques, 6.4). How
    far windows are off the quotient of their kind, as parts of the kind's mean, is taken from all
    windows together, since a kind has few. Windows without damage to speak of hardly count.
    """
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for window, one, other in zip(windows, changed, reference, strict=True):
        groups[window.kind].append((max(one, _TINY), max(other, _TINY)))
    by_kind = {
        kind: sum(one for one, _ in pairs) / sum(other for _, other in pairs)
        for kind, pairs in groups.items()
    }
    squares = 0.0
    for kind, pairs in groups.items():
        mean = sum(one for one, _ in pairs) / len(pairs)
        squares += sum(((one - by_kind[kind] * other) / mean) ** 2 for one, other in pairs)
    freedom = len(windows) - len(groups)
    spread = math.sqrt(squares / freedom) if freedom > 0 else 0.0
    return Shares(
        by_kind,
        {
            kind: share * (1 + _STANDARD_ERRORS * spread / math.sqrt(len(groups[kind])))
            for kind, share in by_kind.items()
        },
    )


def find_step(target: float, steps: Sequence[float], share_of: Callable[[int], float]) -> float:
    """Finds the step whose share is the target, between steps that are measured.

    Args:
        target: The share that is wanted.
        steps: Rising.
        share_of: Measures the step of an index; asked for few of them.

    Returns:
        By interpolation of logarithms; the first or the last step where the target is beyond.
    """
    above = bisect.bisect_left(range(len(steps)), target, key=share_of)
    if above in (0, len(steps)):
        return steps[min(above, len(steps) - 1)]
    low, high = (math.log(max(share_of(i), 1e-12)) for i in (above - 1, above))
    part = (math.log(target) - low) / (high - low) if high > low else 0.0
    return steps[above - 1] * math.pow(steps[above] / steps[above - 1], min(max(part, 0.0), 1.0))
