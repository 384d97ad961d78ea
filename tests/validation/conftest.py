# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The modules of validation/, as its scripts import them, and the service they use."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))
sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from oracle.fixtures import SAMPLE, bin_dir, service

__all__ = ["bin_dir", "service"]


@pytest.fixture
def sample() -> Path:
    """The file of the repository's real cache."""
    return SAMPLE
