# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The service on data alone, without a model: synthetic, and the committed real sample."""

import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from compression_bridge import REPOSITORY, CompressionMetrics, compress_kv_cache
from compression_bridge import decompress_kv_cache as restore

SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
_LAYERS, _SHAPE, _SIGMA, _SEED = 22, (1, 4, 128, 64), 0.3, 42


def synthetic(path: Path) -> None:
    """Writes a cache of TinyLlama's shapes in FP16, every value drawn from N(0, 0.3)."""
    random = np.random.default_rng(_SEED)
    save_file(
        {
            f"layer_{i}_{part}": random.normal(0.0, _SIGMA, _SHAPE).astype(np.float16)
            for i in range(_LAYERS)
            for part in ("key", "value")
        },
        path,
    )


def quick_test(codec: str) -> tuple[CompressionMetrics, CompressionMetrics]:
    """Compresses and restores synthetic data and the real sample.

    Args:
        codec: A codec string, such as klt:ultra.

    Returns:
        What the service measured on each.

    Raises:
        CompressionError: A call failed.
        OSError: A file cannot be written, or no server can be started.
    """
    with tempfile.TemporaryDirectory(prefix="kvcompress-") as folder:
        made = Path(folder) / "synthetic.safetensors"
        artefact, restored = Path(folder) / "artefact", Path(folder) / "restored"
        synthetic(made)
        measured = []
        for source in (made, SAMPLE):
            metrics = compress_kv_cache(str(source), str(artefact), codec=codec)
            restore(str(artefact), str(restored))
            measured.append(metrics)
    return measured[0], measured[1]
