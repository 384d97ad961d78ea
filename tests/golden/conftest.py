# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the golden tests: those of the contract tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))

from oracle.fixtures import bin_dir, client, server

__all__ = ["bin_dir", "client", "server"]
