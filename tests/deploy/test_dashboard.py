# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The dashboard: up to date, and no panel empty over servers that are really loaded."""

import time
from collections.abc import Iterator

import pytest
import yaml
from observed import PATIENCE, Prometheus, filled_in, observed, panels
from tools import REPOSITORY, Fact, Tool, output, program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def prometheus(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Watching two servers under load."""
    binary = program("prometheus", "prometheus", tool)
    with observed(binary, tmp_path_factory.mktemp("observed")) as prometheus:
        yield prometheus


def wait_for(prometheus: Prometheus, expression: str, title: str) -> int:
    """Waits until a query has points; how many series it has."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if series := prometheus.query(expression):
            return len(series)
        assert time.monotonic() < deadline, f"{title} stays empty: {expression}"
        time.sleep(1)


def test_generated_files_are_up_to_date() -> None:
    """The dashboard's JSON and the rules for the operator are what the code makes."""
    output(REPOSITORY / "deploy" / "grafana" / "generate", "--check")


def test_no_panel_is_empty(prometheus: Prometheus, fact: Fact) -> None:
    """Every query of the committed JSON finds data."""
    queries = series = 0
    for panel in panels():
        for target in panel["targets"]:
            expression = filled_in(target["expr"])
            assert "$" not in expression
            series += wait_for(prometheus, expression, panel["title"])
            queries += 1
    seconds = time.time() - prometheus.begun
    fact(
        f"Prometheus {prometheus.get('status/buildinfo')['version']}: {len(panels())} panels, "
        f"{queries} queries, {series} series, none empty after {seconds:.0f} s of load"
    )


def test_recording_rules_find_data(prometheus: Prometheus) -> None:
    """None stays empty, none fails."""
    groups = prometheus.get("rules", type="record")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    for rule in rules:
        assert rule["health"] != "err", rule
        wait_for(prometheus, rule["name"], rule["name"])


def test_an_alert_fires(prometheus: Prometheus, fact: Fact) -> None:
    """On artefacts that were really damaged; and none that is not due."""
    wait_for(prometheus, 'ALERTS{alertname="KVCompressIntegrityFailure"}', "the alert")
    alerts = prometheus.get("alerts")["alerts"]
    firing = {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
    assert "KVCompressIntegrityFailure" in firing
    assert not firing & {"KVCompressAbsent", "KVCompressDown", "KVCompressInternalError"}
    fact(f"alerts that fired under that load: {', '.join(sorted(firing))}")


def test_autoscaler_finds_its_metric(prometheus: Prometheus) -> None:
    """By the query that prometheus-adapter makes of its rule, for each pod."""
    rules = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "adapter.yaml").read_text())
    [rule] = rules["rules"]
    expression = rule["metricsQuery"].replace("<<.Series>>", "kvcompress_inflight_bytes")
    expression = expression.replace("<<.LabelMatchers>>", 'namespace="kvcompress"')
    expression = expression.replace("<<.GroupBy>>", "pod")
    assert wait_for(prometheus, expression, "the metric") == 2
    peak = max(value for points in prometheus.query(expression).values() for _, value in points)
    assert peak > 0
