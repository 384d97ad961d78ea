# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The release, by semantic versioning; pyproject.toml takes it from here."""

__version__ = "0.1.0"
