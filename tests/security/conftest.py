# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Real servers with real certificates, made by openssl for each test."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
sys.path.insert(0, str(Path(__file__).parent))

from authority import Authority
from server_process import start

__all__ = ["authority", "start", "stranger"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The one that servers and clients are signed by."""
    return Authority(tmp_path, "ours")


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """One that nobody trusts."""
    return Authority(tmp_path, "stranger")
