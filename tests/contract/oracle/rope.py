# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings by the published formulas, and caches made with them.

Inverse frequencies are restated from the papers and from `modeling_rope_utils.py` of Hugging Face's
transformers; nothing here comes from the code under test.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def inverse_frequencies(
    theta: float, channels: int, scaling: dict[str, Any] | None = None
) -> Floats:
    """Radians that each pair of so many rotated channels turns by in a token."""
    plain: npt.NDArray[np.float64] = 1 / theta ** (np.arange(0, channels, 2) / channels)
    kind = (scaling or {}).get("rope_type") or (scaling or {}).get("type")
    if scaling is None or kind == "default":
        return plain
    factor = float(scaling["factor"])
    if kind == "linear":
        return plain / factor
    positions = scaling["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wavelengths = 2 * math.pi / plain
        scaled = np.where(wavelengths > positions / low, plain / factor, plain)
        smooth = (positions / wavelengths - low) / (high - low)
        smoothed = (1 - smooth) * scaled / factor + smooth * scaled
        medium = (wavelengths >= positions / high) & (wavelengths <= positions / low)
        return np.where(medium, smoothed, scaled)

    def dimension(turns: float) -> float:
        return channels * math.log(positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = dimension(scaling.get("beta_fast", 32)), dimension(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, channels - 1)
    ramp = np.clip((np.arange(channels // 2) - first) / max(last - first, 0.001), 0, 1)
    mixed: npt.NDArray[np.float64] = plain / factor * ramp + plain * (1 - ramp)
    return mixed


def rotate(values: Floats, frequencies: Floats, *, interleaved: bool = False) -> Floats:
    """Rotates the first channels of [..., tokens, channels] as a model does."""
    pairs = len(frequencies)
    angles = np.arange(values.shape[-2])[:, None] * frequencies
    one = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    other = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    result = values.copy()
    a, b = values[..., one], values[..., other]
    result[..., one] = a * np.cos(angles) - b * np.sin(angles)
    result[..., other] = b * np.cos(angles) + a * np.sin(angles)
    return result


def keys(shape: tuple[int, ...], seed: int) -> Floats:
    """Keys before rotation: channels with means and widths of their own."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * rng.uniform(0.2, 2, shape[-1])
    return values + 2 * rng.standard_normal(shape[-1])
