# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the command line: `python -m kvcompress -help`."""

import sys

from kvcompress.cli.commands import main

sys.exit(main(sys.argv[1:]))
