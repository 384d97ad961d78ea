# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the load tests: the real binaries."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))

from server_process import start

from oracle.fixtures import bin_dir

__all__ = ["bin_dir", "start"]
