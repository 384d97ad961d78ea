# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the fault tests: real servers, the real command line, and proxies between them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
sys.path.insert(0, str(Path(__file__).parents[1] / "security"))
sys.path.insert(0, str(Path(__file__).parent))

from command_line import kv_compress
from server_process import start

__all__ = ["kv_compress", "start"]
