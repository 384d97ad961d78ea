# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Copies from the host to a device that nobody waits for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

_ALIGNMENT = 16  # bytes

Array = npt.NDArray[Any]


def send(array: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    """Copies an array to the device; the host does not wait for what the stream has."""
    return send_all([array], device)[0]


def send_all(arrays: Sequence[Array], device: torch.device) -> list[torch.Tensor]:
    """Copies arrays to the device in one go: each copy costs the host as much as many bytes.

    Returns:
        Tensors of the arrays' types and shapes, which share memory.
    """
    begins, size = [], 0
    for array in arrays:
        begins.append(size)
        size += padded(array.nbytes)
    staging = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    held = staging.numpy()
    for array, begin in zip(arrays, begins, strict=True):
        flat = np.ascontiguousarray(array).reshape(-1)
        held[begin : begin + array.nbytes] = flat.view(np.uint8)
    sent = staging.to(device, non_blocking=True)
    return [
        sent[begin : begin + array.nbytes].view(_TYPES[array.dtype.str[1:]]).reshape(array.shape)
        for array, begin in zip(arrays, begins, strict=True)
    ]


_TYPES = {
    np.dtype(name).str[1:]: getattr(torch, name)
    for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}


def padded(size: int) -> int:
    """Bytes that an array of a size takes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
