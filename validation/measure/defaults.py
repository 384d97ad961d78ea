# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the validator takes where nothing is given. Imports nothing: --help works anywhere."""

DEFAULT_MODEL = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
DEFAULT_TEXT = "wikitext:wikitext-2-raw-v1:test"
PERPLEXITY_THRESHOLD = 0.5
"""Largest acceptable rise of perplexity: KVQuant's standard."""
