#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compresses a cache of NumPy arrays, restores it, and prints the ratio and the quality.

Needs kv-compressd as `kvcompress.Client()` does.
"""

import numpy as np

import kvcompress

random = np.random.default_rng(0)  # stands for a model: [batch, heads, tokens, head_dim]
names = [f"layer_{i}_{part}" for i in range(4) for part in ("key", "value")]
cache = {name: random.normal(size=(1, 8, 256, 64)).astype(np.float16) for name in names}
with kvcompress.Client() as client:
    result = client.compress(cache)
    restored = client.decompress(result.artefact).tensors
print(result.report.compression_ratio, result.report.metrics.snr_db, restored["layer_0_key"].shape)
