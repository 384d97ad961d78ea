# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Kernels with what those of KV caches do; as a program, runs them by Triton's own interpreter.

    TRITON_INTERPRET=1 python grid_kernels.py VALUES WRITTEN

Tensors are files of torch.
"""

# Constants of a launch are in capitals, and Triton gives types to what it compiles.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202, N803

import sys
from typing import Any

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

SIZE = 12  # values of a head, fewer than a power of two
SLOT = SIZE // 2 + 2 + SIZE  # 4 bits for each, a scale, and an index for each


@triton.jit
def _pack(low, high):
    return (low & 0xF) | ((high & 0xF) << 4)


@triton.jit
def write(values, levels, slots, target, heads, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Writes slots of bytes."""
    token, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    base = target + (slot * heads + head).to(tl.int64) * (SIZE // 2 + 2 + SIZE)
    at = tl.arange(0, WIDTH)
    mask = at < SIZE
    row = tl.load(values + (token * heads + head) * SIZE + at, mask=mask, other=0.0)
    row = row.to(tl.float32)
    least = tl.min(tl.where(mask, row, float("inf")), axis=0)
    most = tl.max(tl.where(mask, row, -float("inf")), axis=0)
    scale = tl.maximum((most - least) / 15.0, 1e-6)
    steps = tl.clamp(((row - least) / scale + 0.5).to(tl.float32), 0.0, 15.0).to(tl.int32)
    pairs = tl.reshape(steps, [WIDTH // 2, 2])
    shifts = tl.arange(0, 2) * 4
    packed = tl.sum(pairs << shifts[None, :], axis=1).to(tl.uint8)
    half = tl.arange(0, WIDTH // 2)
    tl.store(base + half, packed, mask=half < SIZE // 2)
    bits = scale.to(tl.float16).to(tl.uint16, bitcast=True)
    tl.store(base + SIZE // 2, _pack(bits.to(tl.uint8), (bits >> 4).to(tl.uint8)))
    tl.store(base + SIZE // 2 + 1, ((bits >> 8) & 0xFF).to(tl.uint8))
    low = tl.zeros([WIDTH], dtype=tl.int32)
    high = tl.full([WIDTH], 7, dtype=tl.int32)
    for _ in range(3):
        middle = (low + high) >> 1
        level = tl.load(levels + tl.minimum(middle, 6), mask=mask, other=0.0)
        low = tl.where(row >= level, middle + 1, low)
        high = tl.where(row >= level, high, middle)
    tl.store(base + SIZE // 2 + 2 + at, tl.abs(low - 7).to(tl.uint8), mask=mask)


@triton.jit
def read(source, target, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Reads the 4 bits of slots, times the scale."""
    at = tl.arange(0, WIDTH)
    mask = at < SIZE
    base = source + tl.program_id(0) * (SIZE // 2 + 2 + SIZE)
    packed = tl.load(base + at // 2, mask=mask, other=0).to(tl.int32)
    low = tl.load(base + SIZE // 2).to(tl.uint16)
    high = tl.load(base + SIZE // 2 + 1).to(tl.uint16)
    scale = (low | (high << 8)).to(tl.float16, bitcast=True).to(tl.float32)
    value = ((packed >> ((at % 2) * 4)) & 0xF).to(tl.float32) * scale
    norm = 1.0 / tl.sqrt(tl.sum(tl.where(mask, value * value, 0.0), axis=0) + 1e-6)
    tl.store(target + tl.program_id(0) * SIZE + at, (value * norm).to(tl.float16), mask=mask)


def run(values: torch.Tensor, module: Any = None) -> dict[str, torch.Tensor]:
    """Runs both kernels of a module, by default this one, on [tokens, heads, SIZE]."""
    kernels = sys.modules[__name__] if module is None else module
    tokens, heads, size = values.shape
    levels = torch.linspace(-1, 1, 7)
    slots = torch.arange(tokens - 1, -1, -1, dtype=torch.int32)
    written = torch.zeros(tokens, heads, SLOT, dtype=torch.uint8)
    restored = torch.zeros(tokens * heads, size, dtype=torch.float16)
    kernels.write[(tokens, heads)](values, levels, slots, written, heads, SIZE=size, WIDTH=16)
    kernels.read[lambda _: (tokens * heads,)](written, restored, SIZE=size, WIDTH=16, num_warps=4)
    return {"written": written, "restored": restored}


if __name__ == "__main__":
    torch.save(run(torch.load(sys.argv[1])), sys.argv[2])
