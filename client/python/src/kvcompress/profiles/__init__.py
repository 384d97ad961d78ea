# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Profiles: what is known of a model's caches beforehand, trained once for each model.

`python -m kvcompress.profiles train` trains one from a Hugging Face model, and
`python -m kvcompress.profiles report` shows what a profile is. `for_model` finds the profile of a
model. Training needs torch and transformers, and the native kv-compress; the others need neither.
"""

from kvcompress.profiles._matching import for_model
from kvcompress.profiles._report import (
    Expectation,
    Preset,
    ProfileInfo,
    format_report,
    read_profile,
)

__all__ = ["Expectation", "Preset", "ProfileInfo", "for_model", "format_report", "read_profile"]
