# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""torch tensors in and out. torch is imported only where a caller has it already."""

import mmap
import sys
from typing import TYPE_CHECKING, TypeGuard

from kvcompress._arrays import TORCH_TYPES, Array, load_bits

if TYPE_CHECKING:
    import torch  # type: ignore[import-not-found,unused-ignore]


_BY_BITS = {"BF16", "U16", "U32", "U64"}


def is_tensor(value: object) -> TypeGuard["torch.Tensor"]:
    """Returns whether a value is a torch tensor; without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def dtype_name(tensor: "torch.Tensor") -> str:
    """Returns the name of the element type, such as `bfloat16`."""
    return str(tensor.dtype).removeprefix("torch.")


def tensor_bits(tensor: "torch.Tensor") -> Array:
    """Returns the elements of a tensor in C order, bit for bit.

    Args:
        tensor: A tensor of a type that `data_type` knows, of any shape, strides and device.

    Returns:
        An array of the same type, or of integers that hold the bit patterns where NumPy has none.
        It shares memory with the tensor where that lies in the CPU's memory in C order.
    """
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    elif dtype_name(tensor).startswith("float8"):
        tensor = tensor.view(torch.uint8)
    array: Array = tensor.numpy()
    return array


def load_torch(data: bytes | mmap.mmap, *, share: bool = False) -> "dict[str, torch.Tensor]":
    """Opens a safetensors file in memory as torch tensors.

    Args:
        data: The file. Types whose elements are not whole bytes are refused.
        share: Whether tensors are views of `data`, which they keep, and which can be written to.

    Returns:
        The tensors by name, in the order of the data, on the CPU, of the types they had. Without
        `share` they have no memory in common with `data` nor with each other.

    Raises:
        ImportError: torch is not installed.
        ValueError: The bytes are not such a file, or this torch has no such type.
    """
    import torch

    tensors = {}
    for name, (dtype, bits) in load_bits(data)[0].items():
        known = getattr(torch, TORCH_TYPES[dtype], None)
        if known is None:
            raise ValueError(f"torch has no type for {dtype} of tensor {name!r}")
        # Of what NumPy or an old torch lacks, the bits, through a type that both have.
        plain = bits.view(f"i{bits.itemsize}") if dtype in _BY_BITS else bits
        tensors[name] = torch.from_numpy(plain if share else plain.copy()).view(known)
    return tensors
