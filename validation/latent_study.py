# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What codecs make of the latents of multi-head latent attention (MLA), made from a real cache.

Usage: python latent_study.py CACHE.safetensors [--first LAYER] [CODEC ...]

The cache has tensors `layer_N_key` and `layer_N_value`, [1, heads, tokens, dim]. Printed for each
codec and each way to lay a latent out: ratio against 16 bits, SNR in dB, the ratio at the error of
the first codec and over its ratio, and values per second. An error is made another by 6.02 dB for
each bit of a value.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compression_bridge import open_client
from kvcompress._arrays import load_arrays

Floats = npt.NDArray[np.float64]

CODECS = ["ecsq:0.52,0.52", "klt:0.52,0.52", "ecsq:contract", "klt:contract"]
LATENT = 512
LAYERS = 4
"""Layers whose keys and values make one latent: more dimensions than it has."""


def latents(layers: list[tuple[Floats, Floats]], seed: int = 1) -> tuple[Floats, Floats]:
    """Makes an MLA cache of real keys and values, each [heads, tokens, dim].

    Keys and values of the layers are put side by side for each token, and projected to 512 numbers
    by a fixed matrix: their principal directions, which are what least squares gives, and then a
    random orthogonal matrix, since a model's up-projection absorbs any and training prefers none.
    As in DeepSeek's models, each latent is then divided by its root mean square. The rotated part
    is the key of the first head as it is in the cache.

    Returns:
        Latents [tokens, 512] and rotated parts [tokens, dim].
    """
    stacked = np.concatenate(
        [np.swapaxes(part, 0, 1).reshape(part.shape[1], -1) for layer in layers for part in layer],
        axis=1,
    )
    _, _, directions = np.linalg.svd(stacked, full_matrices=False)
    projected = stacked @ directions[:LATENT].T
    mixing = np.linalg.qr(np.random.default_rng(seed).standard_normal((LATENT, LATENT)))[0]
    latent = projected @ mixing[: projected.shape[1]]
    latent /= np.sqrt((latent**2).mean(axis=1, keepdims=True))
    return latent, layers[0][0][0]


def layouts(latent: Floats, rotated: Floats) -> Iterator[tuple[str, Mapping[str, Any], Floats]]:
    """Gives names, options and tensors: as one head, in heads of 256 and of 64, with its rotation.

    The RoPE of the cache that was taken is declared for the last.
    """
    both = np.concatenate([latent, rotated], axis=1)
    tokens = len(latent)

    def heads(values: Floats, size: int) -> Floats:
        return values.reshape(tokens, -1, size).transpose(1, 0, 2)[None]

    yield "[1, 1, T, 512]", {}, latent[None, None]
    yield "[1, 2, T, 256]", {}, heads(latent, 256)
    yield "[1, 1, T, 576]", {}, both[None, None]
    yield "[1, 9, T, 64]", {}, heads(both, 64)
    config = {"rope_theta": 1e5, "kv_lora_rank": LATENT, "qk_rope_head_dim": rotated.shape[1]}
    yield "[1, 1, T, 576], RoPE told", {"model_config": config}, both[None, None]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--first", type=int, default=0, help="of the four layers that are taken")
    parser.add_argument("codec", nargs="*", default=CODECS)
    arguments = parser.parse_intermixed_args()
    arrays, _ = load_arrays(arguments.cache.read_bytes())
    layers = [
        (
            arrays[f"layer_{n}_key"].astype(np.float64)[0],
            arrays[f"layer_{n}_value"].astype(np.float64)[0],
        )
        for n in range(arguments.first, arguments.first + LAYERS)
    ]
    print("codec | tensor | ratio | SNR, dB | at the first's error | million values a second")
    with open_client() as client:
        for name, options, values in layouts(*latents(layers)):
            first = None
            for codec in arguments.codec:
                begin = time.perf_counter()
                got = client.compress(
                    {"latent": np.float32(values)}, codec=codec, require=False, **options
                )
                speed = values.size / (time.perf_counter() - begin) / 1e6
                report = got.report
                bits, snr = report.bits_per_value, report.metrics.snr_db or math.inf
                first = first or (bits, snr)
                alike = first[0] / (bits - (snr - first[1]) / 6.02)
                print(
                    f"{codec} | {name} | {report.compression_ratio:.3f} | {snr:.2f} | "
                    f"{alike:.3f}x | {speed:.1f}"
                )


if __name__ == "__main__":
    main()
