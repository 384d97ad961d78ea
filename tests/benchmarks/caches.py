# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Made caches of BF16, whose tokens have something in common."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HEADS, CHANNELS = 8, 128


def make_tensor(tokens: int) -> NDArray[np.uint16]:
    """One in BF16, [1, HEADS, tokens, CHANNELS], whose tokens have something in common."""
    random = np.random.default_rng(1)
    factors = random.standard_normal((tokens, 16), np.float32)
    values = factors @ random.standard_normal((16, HEADS * CHANNELS), np.float32) / 4
    values += 0.25 * random.standard_normal(values.shape, np.float32)
    heads = values.reshape(tokens, HEADS, CHANNELS).swapaxes(0, 1)
    return (np.ascontiguousarray(heads).view(np.uint32) >> 16).astype(np.uint16)


def write_cache(
    path: Path,
    tensor: NDArray[np.uint16],
    count: int,
    in_order: Callable[[list[str]], list[str]] = list,
) -> int:
    """A cache of keys and values, each `count` times the tensor; its size in bytes."""
    names = in_order(
        [f"layer_{layer}_{part}" for layer in range(count) for part in ("key", "value")]
    )
    shape = [1, HEADS, tensor.shape[1], CHANNELS]
    entries = {
        name: {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [i * tensor.nbytes, (i + 1) * tensor.nbytes],
        }
        for i, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in names:
            file.write(tensor.tobytes())
    return path.stat().st_size
