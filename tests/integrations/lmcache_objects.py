# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""LMCache's own keys, memory objects and waiting, for the tests of adapter and serde."""

import select
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from lmcache.v1.distributed.api import ObjectKey  # type: ignore[import-not-found,unused-ignore]
from lmcache.v1.memory_management import (  # type: ignore[import-not-found,unused-ignore]
    MemoryFormat,
    MemoryObjMetadata,
    TensorMemoryObj,
)

LAYERS, TOKENS, HEADS, HEAD_DIM = 3, 64, 2, 16
FIELDS: dict[str, Any] = {
    "chunk_hash": b"\x01" * 32,
    "model_name": "org/model",
    "kv_rank": 0,
    "object_group_id": 0,
    "cache_salt": "a",
}
OTHERS: dict[str, Any] = {
    "chunk_hash": b"\x02" * 32,
    "model_name": "org/other",
    "kv_rank": 1,
    "object_group_id": 1,
    "cache_salt": "",
}
KEY = ObjectKey(**FIELDS)
LAYOUTS: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "split": ((2, LAYERS, TOKENS, HEADS * HEAD_DIM), {"layout": "kv", "head_dim": HEAD_DIM}),
    "fused-3": ((LAYERS, TOKENS, 2 * HEADS * HEAD_DIM), {"layout": "kv", "head_dim": HEAD_DIM}),
    "fused-4": ((1, LAYERS, TOKENS, 2 * HEADS * HEAD_DIM), {"layout": "kv", "head_dim": HEAD_DIM}),
    "cpu": (
        (LAYERS, TOKENS, 2 * HEADS * HEAD_DIM),
        {"layout": "cpu_attn", "head_dim": HEAD_DIM, "block_tokens": 32},
    ),
    "mla-3": ((LAYERS, TOKENS, 40), {"layout": "mla", "rope_dim": 8}),
    "mla-4": ((1, LAYERS, TOKENS, 40), {"layout": "mla", "rope_dim": 8}),
}
"""Shapes as LMCache has them, and what the configuration says of them."""


def other_key(field: str) -> Any:  # noqa: ANN401
    """A key that differs from KEY in one field."""
    return ObjectKey(**{**FIELDS, field: OTHERS[field]})


def memory(*tensors: Any) -> Any:  # noqa: ANN401
    """A memory object that holds tensors one after the other, in the format of LMCache."""
    raw = torch.cat([tensor.contiguous().view(torch.uint8).flatten() for tensor in tensors])
    shapes, dtypes = [each.shape for each in tensors], [each.dtype for each in tensors]
    metadata = MemoryObjMetadata(
        shapes[0],
        dtypes[0],
        0,
        raw.numel(),
        1,
        fmt=MemoryFormat.UNDEFINED,
        shapes=shapes,
        dtypes=dtypes,
    )
    return TensorMemoryObj(raw, metadata, None)


def states(*shape: int, dtype: Any = None) -> Any:  # noqa: ANN401
    """Random states."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).to(dtype or torch.bfloat16)


def zeros_like(source: Any) -> Any:  # noqa: ANN401
    """A memory object of zeros."""
    kinds = zip(source.get_shapes(), source.get_dtypes(), strict=True)
    return memory(*(torch.zeros(shape, dtype=torch.uint8).to(dtype) for shape, dtype in kinds))


def finish(descriptor: int, query: Any, task: int) -> Any:  # noqa: ANN401
    """Waits for a task as LMCache does, and returns its result."""
    while True:
        ready, _, _ = select.select([descriptor], [], [], 60)
        assert ready
        done = query(task)
        if done is not None:
            return done
