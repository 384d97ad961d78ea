# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the deployment tests, and the account of what they did."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lifecycle"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "security"))
# What is tested here, behind the tests' own modules.
sys.path.append(str(Path(__file__).resolve().parents[2] / "deploy"))

from authority import Authority
from containers import podman
from server_process import start
from tools import Fact, tool

from oracle.fixtures import bin_dir

__all__ = ["authority", "bin_dir", "podman", "start", "tool"]

_facts: dict[str, list[str]] = defaultdict(list)

# What no test here tries, and why.
NOT_TRIED = [
    "a kubelet: none can be had from package registries, so that the pods were admitted by the "
    "API server at most, and no autoscaler or network policy acted",
    "Grafana: not to be had; the dashboard's queries were run, its drawing was not",
    "cert-manager and the Prometheus operator: only the schemas of their resources",
]


@pytest.fixture(scope="module")
def fact(request: pytest.FixtureRequest) -> Fact:
    """Takes sentences for the account at the end."""
    return _facts[request.node.nodeid].append


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One for certificates of servers."""
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Iterator[None]:
    """Prints what each file did, in how many seconds, and what it could not do."""
    yield
    if not config.getoption("--account", default=False):
        return
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    reasons: dict[str, list[str]] = defaultdict(list)
    for outcome in ("passed", "failed", "error", "skipped", ""):
        for report in terminalreporter.stats.get(outcome, []):
            if not isinstance(report, pytest.TestReport):
                continue
            module = report.nodeid.partition("::")[0]
            seconds[module] += report.duration
            if outcome:
                counts[module][outcome] += 1
            if outcome == "skipped" and isinstance(report.longrepr, tuple):
                reason = report.longrepr[2].removeprefix("Skipped: ")
                if reason not in reasons[module]:
                    reasons[module].append(reason)
    write = terminalreporter.write_line
    terminalreporter.section("what was done")
    for module in seconds:
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in counts[module].items())
        write(f"{Path(module).stem.removeprefix('test_'):<14}{seconds[module]:5.0f} s  {outcomes}")
        for sentence in _facts[module]:
            write(f"{'':<23}{sentence}")
        for reason in reasons[module]:
            write(f"{'':<23}not done here: {reason}")
    for sentence in NOT_TRIED:
        write(f"not tried: {sentence}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The account is for tests/deploy/run."""
    parser.addoption("--account", action="store_true", help="say what was done, and in what time")
