# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Profiles: what is known of a model's caches beforehand, trained once for each model.

`python -m kvcompress.profiles train` trains one from a Hugging Face model, and
`python -m kvcompress.profiles report` shows what a profile is. Training needs torch and
transformers, and the native kv-compress; reading a profile needs neither.
"""

from kvcompress.profiles._report import (
    Expectation,
    Preset,
    ProfileInfo,
    format_report,
    read_profile,
)

__all__ = ["Expectation", "Preset", "ProfileInfo", "format_report", "read_profile"]
