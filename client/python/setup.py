# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Keeps what setuptools makes on the way to a wheel out of this folder.

All else is in pyproject.toml.
"""

import tempfile

from setuptools import setup

with tempfile.TemporaryDirectory(prefix="kvcompress-build-") as folder:
    setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
