# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a changed cache does to a model's predictions: per window, and over windows.

A window is a run of real text. The model has read its prefix; the tokens after it, the
continuation, are scored with the model's own cache and with the changed one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Two-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
_STUDENT_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class WindowScore:
    """Means over the continuation of one window.

    Attributes:
        tokens: Number of tokens scored.
        nll_base: Negative log-likelihood per token with the model's own cache, in nats.
        nll: The same with the changed cache.
        kl: KL divergence of next-token distributions, KL(own || changed), in nats.
        top1: Share of positions where both caches give the same most likely token.
    """

    tokens: int
    nll_base: float
    nll: float
    kl: float
    top1: float


@dataclass(frozen=True)
class Measurement:
    """A row on a window: what the table, the plot and the JSON are made of.

    Attributes:
        text: Name of the text.
        bytes: Bytes of the compressed form.
        elements: Number of values.
        tensors: Number of tensors.
        passed: Number of tensors within the usual thresholds.
        rmse: Over all tensors pooled.
        snr_db: Over all tensors pooled; inf when exact.
        score: What it does to the model.
    """

    text: str
    bytes: int
    elements: int
    tensors: int
    passed: int
    rmse: float
    snr_db: float
    score: WindowScore


@dataclass(frozen=True)
class Estimate:
    """A mean over windows and its standard error; the error is nan for a single window."""

    value: float
    error: float


@dataclass(frozen=True)
class Summary:
    """What a codec does to a model, over windows.

    Attributes:
        windows: Number of windows.
        kl: Mean KL divergence in nats.
        delta_nll: Change of the negative log-likelihood per token, in nats.
        top1: Share of equal most likely tokens.
        base_perplexity: exp of the mean negative log-likelihood, own cache.
        perplexity: The same, changed cache.
        delta_perplexity: Their difference; its error is a jackknife's, since windows are paired.
    """

    windows: int
    kl: Estimate
    delta_nll: Estimate
    top1: Estimate
    base_perplexity: float
    perplexity: float
    delta_perplexity: Estimate


def estimate(values: Sequence[float]) -> Estimate:
    """Returns the mean of independent values and the standard error of that mean."""
    array = np.asarray(values, dtype=np.float64)
    error = float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.nan
    return Estimate(float(array.mean()), error)


def interval(mean: Estimate, windows: int) -> tuple[float, float]:
    """Returns the 95 % confidence interval of a mean over windows, by Student's t distribution.

    Both ends are nan for a single window. From 31 degrees of freedom on, the quantile of 30 is
    taken, which is at most 5 % too wide.
    """
    if windows < 2:
        return math.nan, math.nan
    half = _STUDENT_95[min(windows - 1, len(_STUDENT_95)) - 1] * mean.error
    return mean.value - half, mean.value + half


def jackknife(columns: Floats, statistic: Callable[[Floats], float]) -> Estimate:
    """Returns a statistic of all columns and its standard error, leaving out one at a time.

    Args:
        columns: [quantities, windows].
        statistic: Takes such an array with any number of windows.
    """
    value = statistic(columns)
    n = columns.shape[1]
    if n < 2:
        return Estimate(value, math.nan)
    left_out = np.array([statistic(np.delete(columns, i, axis=1)) for i in range(n)])
    variance = (n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum())
    return Estimate(value, math.sqrt(variance))


def summarize(scores: Sequence[WindowScore]) -> Summary:
    """Returns the means over windows with their standard errors; every window weighs the same.

    Raises:
        ValueError: There are no scores.
    """
    if not scores:
        raise ValueError("no windows to summarize")
    nll = np.array([[score.nll_base for score in scores], [score.nll for score in scores]])

    def delta(columns: Floats) -> float:
        base, changed = np.exp(columns.mean(axis=1))
        return float(changed - base)

    base, changed = np.exp(nll.mean(axis=1))
    return Summary(
        windows=len(scores),
        kl=estimate([score.kl for score in scores]),
        delta_nll=estimate([score.nll - score.nll_base for score in scores]),
        top1=estimate([score.top1 for score in scores]),
        base_perplexity=float(base),
        perplexity=float(changed),
        delta_perplexity=jackknife(nll, delta),
    )


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Returns the ratio of two means over the same windows, with a jackknife's error."""
    columns = np.array([numerator, denominator], dtype=np.float64)

    def of_means(part: Floats) -> float:
        over, under = part.mean(axis=1)
        return float(over / under) if under else math.nan

    return jackknife(columns, of_means)
