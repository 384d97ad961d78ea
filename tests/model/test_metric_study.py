# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The study of metrics: ranks, pairs and its page, on numbers whose order is known."""

import math
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import metric_study


def test_ranks_share_the_mean_of_equal_values() -> None:
    assert metric_study.ranks([5, 1, 5, 9]).tolist() == [1.5, 0, 1.5, 3]


@pytest.mark.parametrize(
    ("second", "correlation"),
    [([1, 2, 3, 4], 1.0), ([40, 30, 20, 1], -1.0), ([1, 3, 2, 4], 0.8)],
)
def test_rank_correlation(second: list[float], correlation: float) -> None:
    found = metric_study.rank_correlation([1, 10, 100, 1000], second)
    assert found == pytest.approx(correlation)


def test_equal_values_rank_nothing() -> None:
    assert math.isnan(metric_study.rank_correlation([1, 1, 1], [1, 2, 3]))


def test_a_pair_misleads_if_the_more_damaging_one_looks_better() -> None:
    """Those within 1.5 times each other's damage are no pair."""
    assert metric_study.misleading([30, 20, 10], [0.1, 0.01, 0.14]) == (1, 2)


def test_page_orders_metrics_and_gives_shares_of_the_reference() -> None:
    good = next(iter(metric_study.METRICS))
    metrics = {name: [1.0, 2.0, 3.0] for name in metric_study.METRICS}
    window: dict[str, Any] = {
        "text": "news",
        "kl": [0.1, 0.05, 0.2],
        "ratio": [3.7, 3.7, 3.7],
        "metrics": {**metrics, good: [20.0, 30.0, 10.0]},
    }
    setup = dict.fromkeys(("date", "machine", "command", "software"), "") | {
        "minutes": 1.0,
        "windows": 1,
        "prefix": 512,
        "continuation": 128,
    }
    page = metric_study.markdown(
        {
            "setup": setup,
            "codecs": ["int4", "ecsq high", "sparse"],
            "models": [{"model": "A", "windows": [window]}],
        }
    )
    lines = page.splitlines()
    first = lines[lines.index("| --- | --- | --- | --- |") + 1]
    assert first == f"| {good} | 1.00 (least 1.00) | 0.0% | 0.0% |"
    assert "| 10 to 15 dB | 1 | 200% | 200% |" in lines
    assert "| 30 dB and more | 1 | 50% | 50% |" in lines
    assert "| `ecsq high` | 50% (50% to 50%) |" in lines
    assert "| `sparse` | 200% (200% to 200%) |" in lines
