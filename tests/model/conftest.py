# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Tests that need torch: the environment of validation/requirements.txt, and the service."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))
sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "deploy"))

from tiny_llama import model

from oracle.fixtures import bin_dir, client, server, service

__all__ = ["bin_dir", "client", "model", "server", "service"]
