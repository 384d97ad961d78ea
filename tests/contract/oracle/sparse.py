# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`sparse` of FORMAT.md in NumPy."""

from decimal import Decimal

import numpy as np

from oracle.source import F32

BLOCK = 4096


def encode(x: F32, sparsity: str, group: int) -> tuple[bytes, F32] | None:
    """Returns the payload of flattened values and the values it decodes to, unrounded.

    Args:
        x: The values.
        sparsity: Share of the values that become zero, in its one form.
        group: Elements that share a scale.

    Returns:
        None where a scale is not finite.
    """
    payload, decoded = b"", [np.zeros(0, np.float32)]
    for start in range(0, x.size, BLOCK):
        block = x[start : start + BLOCK]
        kept = block.size - int(Decimal(sparsity) * 10000) * block.size // 10000
        order = np.argsort(-np.abs(block), kind="stable")
        mask = np.zeros(block.size, bool)
        mask[order[:kept]] = True
        scales, codes, values = [], [], np.zeros(block.size, np.float32)
        for first in range(0, block.size, group):
            where = first + np.flatnonzero(mask[first : first + group])
            chosen = block[where]
            largest = np.abs(chosen).max() if where.size else np.float32(0)
            with np.errstate(over="ignore"):
                scale = np.float16(largest / np.float32(7))
            if not np.isfinite(scale):
                return None
            scales.append(scale)
            if scale == 0:
                codes += [0] * where.size
                continue
            ratio = (chosen / np.float32(scale)).astype(np.float64)
            q = np.clip(np.copysign(np.floor(np.abs(ratio) + 0.5), ratio), -8, 7).astype(int)
            codes += [int(code) & 15 for code in q]
            values[where] = q.astype(np.float32) * np.float32(scale)
        half = (kept + 1) // 2
        codes += [0] * (kept % 2)
        payload += np.packbits(mask, bitorder="little").tobytes()
        payload += np.array(scales, "<f2").tobytes()
        payload += bytes(codes[i] | codes[i + half] << 4 for i in range(half))
        decoded.append(values)
    return payload, np.concatenate(decoded)
