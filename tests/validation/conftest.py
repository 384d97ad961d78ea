# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The modules of validation/, as its scripts import them, and the service they use."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))
sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from oracle.fixtures import SAMPLE, bin_dir

__all__ = ["bin_dir"]


@pytest.fixture
def sample() -> Path:
    """The file of the repository's real cache."""
    return SAMPLE


@pytest.fixture(autouse=True)
def service(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has every test use the binaries under test, whatever the environment names."""
    monkeypatch.delenv("KVCOMPRESS_SERVER", raising=False)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    monkeypatch.setenv("KV_COMPRESS_PATH", str(bin_dir / "kv-compress"))
