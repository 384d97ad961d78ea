# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The rules of Prometheus: valid, tested by promtool, documented, and of metrics that exist."""

import re
from pathlib import Path

import pytest
import yaml
from documents import claimed_line
from server_process import Start
from tools import REPOSITORY, Fact, Tool, output, program

PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
OPERATIONS = (REPOSITORY / "server" / "OPERATIONS.md").read_text()
RULES = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule["alert"] for rule in RULES if "alert" in rule]


@pytest.fixture(scope="module")
def promtool(tool: Tool) -> str:
    """Of Debian."""
    return program("promtool", "prometheus", tool)


def test_valid(promtool: str) -> None:
    """The rules, and the configuration that names them."""
    output(promtool, "check", "rules", PROMETHEUS / "rules.yaml")
    output(promtool, "check", "config", PROMETHEUS / "prometheus.yaml")


def test_query_of_the_documents(promtool: str, tmp_path: Path) -> None:
    """Promtool can read it."""
    rule = {"record": "a", "expr": claimed_line("query")}
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [rule]}]}))
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
    """By a section that names its severity and says what to do."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in RULES if "alert" in rule}
    sections = dict(re.findall(r"(?m)^### (KVCompress\w+)\n\n(\w+)\. .+", OPERATIONS))
    assert {name: severity.lower() for name, severity in sections.items()} == severities


def test_metrics_exist(start: Start) -> None:
    """What the rules read is what a server exports."""
    page = start().get("/metrics")[2]
    exported = set(re.findall(r"^([a-z_]+)(?:\{.*\})? ", page, re.MULTILINE))
    for rule in RULES:
        read = set(re.findall(r"\b(?:kvcompress|process|grpc)_[a-z_]+", rule["expr"]))
        assert read <= exported, rule
