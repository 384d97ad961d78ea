# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the contract tests: the real binaries, a running server, its clients."""

import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "deploy"))

from kv_compress import artefact, run

from oracle.fixtures import bin_dir, client, sample, server, stub

__all__ = ["artefact", "bin_dir", "client", "run", "sample", "server", "stub"]

# A shell that starts the tests in the background has them, and all that they start, ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
