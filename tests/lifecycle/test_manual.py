# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""OPERATIONS.md has every flag, metric and reason of an error that there is."""

import re
from pathlib import Path

from calls import page_of_a_used_server
from server_process import Start, run

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests/data/smollm2_kjv_96_bf16.safetensors"
MANUAL = (ROOT / "server/OPERATIONS.md").read_text()


def test_every_flag() -> None:
    """With its variable."""
    flags = set(re.findall(r"--[a-z][a-z-]+", run("--help").stdout))
    flags -= {"--help", "--version", "--check-config", "--probe"}
    assert len(flags) > 20
    for flag in flags:
        assert f"`{flag}`" in MANUAL, flag
        assert f"`KVCOMPRESS_{flag[2:].replace('-', '_').upper()}`" in MANUAL, flag


def test_every_metric(start: Start) -> None:
    """By its name on the page."""
    page = page_of_a_used_server(start(), SAMPLE)
    names = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    assert len(names) > 20
    for name in names:
        assert f"`{name}`" in MANUAL, name


def test_every_reason() -> None:
    """Of an error that the library or the server returns."""
    reasons = set()
    for folder in ("core", "server"):
        for path in (ROOT / folder).rglob("*.[ch]*"):
            found = re.findall(r'(?:reason|kReason) = "([A-Z_]+)"', path.read_text())
            reasons.update(found)
    assert len(reasons) > 30
    for reason in reasons:
        assert f"`{reason}`" in MANUAL, reason
