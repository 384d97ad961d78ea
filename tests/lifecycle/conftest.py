# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A real kv-compressd for each test.

The binary is `bin/kv-compressd` of the repository, or that of the directory
KVCOMPRESS_BIN_DIR. The Python package `kvcompress` must be importable.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from server_process import start

__all__ = ["start"]
