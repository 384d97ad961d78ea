# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Means and standard errors, against values worked out by hand."""

import math

import numpy as np
import pytest

from measure.scores import WindowScore, estimate, jackknife, ratio, summarize


def score(nll_base: float, nll: float, kl: float = 0.0, top1: float = 1.0) -> WindowScore:
    return WindowScore(tokens=10, nll_base=nll_base, nll=nll, kl=kl, top1=top1)


def test_the_standard_error_of_a_mean() -> None:
    result = estimate([1.0, 2.0, 3.0, 4.0])
    assert result.value == 2.5
    assert result.error == pytest.approx(math.sqrt(5 / 3 / 4))


def test_a_single_value_has_no_error() -> None:
    assert math.isnan(estimate([1.0]).error)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.array([[1.0, 2.0, 4.0, 9.0]])
    result = jackknife(values, lambda columns: float(columns.mean()))
    assert result.value == 4.0
    assert result.error == pytest.approx(estimate([1.0, 2.0, 4.0, 9.0]).error)


def test_a_ratio_of_proportional_values_is_certain() -> None:
    result = ratio([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert result.value == pytest.approx(0.5)
    assert result.error == pytest.approx(0, abs=1e-12)


def test_a_ratio_to_nothing_is_not_a_number() -> None:
    assert math.isnan(ratio([1.0, 1.0], [0.0, 0.0]).value)


def test_an_unchanged_cache_costs_nothing() -> None:
    summary = summarize([score(2.0, 2.0), score(3.0, 3.0)])
    assert summary.base_perplexity == summary.perplexity == pytest.approx(math.exp(2.5))
    assert (summary.delta_perplexity.value, summary.delta_perplexity.error) == (0, 0)
    assert (summary.kl.value, summary.top1.value) == (0, 1)


def test_the_rise_of_perplexity_is_that_of_the_mean() -> None:
    summary = summarize([score(2.0, 2.1, 0.01, 0.9), score(3.0, 3.3, 0.03, 0.7)])
    assert summary.windows == 2
    assert summary.delta_nll.value == pytest.approx(0.2)
    assert summary.delta_perplexity.value == pytest.approx(math.exp(2.7) - math.exp(2.5))
    assert summary.kl.value == pytest.approx(0.02)
    assert summary.kl.error == pytest.approx(0.01)
    assert summary.top1.value == pytest.approx(0.8)


def test_no_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="no windows"):
        summarize([])
