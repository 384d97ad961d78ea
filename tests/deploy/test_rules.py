# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The rules of Prometheus: valid, tested by promtool, documented, and of metrics that exist."""

import re
from pathlib import Path

import pytest
import yaml
from calls import page_of_a_used_server
from documents import claimed
from server_process import Start
from tools import REPOSITORY, Fact, Tool, output, program

from kvcompress.store._exposition import exposition
from kvcompress.store._ledger import Account

PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
OPERATIONS = (REPOSITORY / "server" / "OPERATIONS.md").read_text()
RULES = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
# tests/engines has vLLM export them; external_prefix_cache are its own.
METRICS = REPOSITORY / "client/python/src/kvcompress/integrations/_vllm_metrics.py"
VLLM = {
    *("vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_queries_total"),
    *(
        f"vllm:kv_offload_kvcompress_{name}{end}"
        for name in re.findall(r"\{_PREFIX\}(\w+)", METRICS.read_text())
        for end in ("", "_total")
    ),
}
ALERTS = [rule["alert"] for rule in RULES if "alert" in rule]


@pytest.fixture(scope="module")
def promtool(tool: Tool) -> str:
    """Of Debian."""
    return program("promtool", "prometheus", tool)


def test_valid(promtool: str) -> None:
    """The rules, and the configuration that names them."""
    output(promtool, "check", "rules", PROMETHEUS / "rules.yaml")
    output(promtool, "check", "config", PROMETHEUS / "prometheus.yaml")


def test_queries_of_the_documents(promtool: str, tmp_path: Path) -> None:
    """Promtool can read them."""
    rules = [{"record": "a", "expr": query} for query in claimed("query")]
    assert len(rules) >= len(ALERTS) - 2
    groups = [{"name": str(i), "rules": [rule]} for i, rule in enumerate(rules)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}))
    output(promtool, "check", "rules", file)


@pytest.mark.slow
def test_alerts_fire_where_they_have_to(promtool: str, fact: Fact) -> None:
    """And nowhere else: the cases of rules_test.yaml and rules_days_test.yaml."""
    files = sorted(PROMETHEUS.glob("rules*_test.yaml"))
    output(promtool, "test", "rules", *files)
    cases = sum(len(yaml.safe_load(file.read_text())["tests"]) for file in files)
    fact(f"{len(RULES)} rules checked, {len(ALERTS)} of them alerts, in {cases} cases of promtool")


def test_every_alert_is_tested() -> None:
    """Where it fires."""
    fired = set()
    for file in PROMETHEUS.glob("rules*_test.yaml"):
        for case in yaml.safe_load(file.read_text())["tests"]:
            for test in case.get("alert_rule_test", []):
                if test.get("exp_alerts"):
                    fired.add(test["alertname"])
    assert fired == set(ALERTS)


def test_every_alert_is_documented() -> None:
    """By a section that names its severity, says what to do, and has a query to begin with."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in RULES if "alert" in rule}
    sections = dict(re.findall(r"(?m)^### (KVCompress\w+)\n\n(\w+)\. .+", OPERATIONS))
    assert {name: severity.lower() for name, severity in sections.items()} == severities
    for name in ALERTS:
        text = OPERATIONS.partition(f"### {name}\n")[2].partition("\n##")[0]
        assert re.search(r"\nFirst query: .+\n\n    .+\n", text), name


def test_every_alert_leads_to_its_section() -> None:
    """By the annotation that Alertmanager shows."""
    for rule in RULES:
        if "alert" in rule:
            where = f"/blob/main/server/OPERATIONS.md#{rule['alert'].lower()}"
            assert rule["annotations"]["runbook_url"].endswith(where)


def test_metrics_exist(start: Start) -> None:
    """What the rules and the queries of the documents read is what a server or a store exports."""
    page = page_of_a_used_server(start(), SAMPLE) + exposition("/cache", Account())
    exported = set(re.findall(r"^([a-z_]+)(?:\{.*\})? ", page, re.MULTILINE))
    for query in [*(rule["expr"] for rule in RULES), *claimed("query")]:
        read = set(re.findall(r"\b(?:kvcompress|process|grpc)_[a-z_]+", query))
        assert read <= exported, query
        assert set(re.findall(r"\bvllm:[a-z_]+", query)) <= VLLM, query
        recorded = set(re.findall(r"\bkvcompress:[a-z0-9_:]+", query))
        assert recorded <= {rule.get("record") for rule in RULES}, query
