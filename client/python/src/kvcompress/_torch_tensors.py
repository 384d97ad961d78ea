# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""torch tensors in and out. torch is imported only where a caller has it already."""

import sys
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from kvcompress._arrays import Array, load_bits

if TYPE_CHECKING:
    import torch  # type: ignore[import-not-found,unused-ignore]


def is_tensor(value: object) -> TypeGuard["torch.Tensor"]:
    """Tells whether a value is a torch tensor; without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def dtype_name(tensor: "torch.Tensor") -> str:
    """Gives the name of the element type, such as `bfloat16`."""
    return str(tensor.dtype).removeprefix("torch.")


def tensor_bits(tensor: "torch.Tensor") -> Array:
    """Gives the elements of a tensor in C order, bit for bit.

    Args:
        tensor: A tensor of float32, float16 or bfloat16, of any shape, strides and device.

    Returns:
        An array of float32 or float16, or of uint16 that holds the bit patterns of bfloat16.
        It shares memory with the tensor where that lies in the CPU's memory in C order.
    """
    import torch

    tensor = tensor.detach().resolve_neg().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.view(torch.int16).numpy().view(np.uint16)
        return bits
    array: Array = tensor.numpy()
    return array


def load_torch(data: bytes) -> "dict[str, torch.Tensor]":
    """Opens a safetensors file in memory as torch tensors.

    Args:
        data: The file, of F32, F16 and BF16 tensors.

    Returns:
        The tensors by name, in the order of the data, on the CPU, with float32, float16 and
        bfloat16 as they were. They share no memory with `data` nor with each other.

    Raises:
        ImportError: torch is not installed.
        ValueError: The bytes are not such a file.
    """
    import torch

    tensors = {}
    for name, (dtype, bits) in load_bits(data)[0].items():
        if dtype == "BF16":
            tensors[name] = torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)
        else:
            tensors[name] = torch.from_numpy(bits.copy())
    return tensors
