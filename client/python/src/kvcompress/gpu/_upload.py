# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Copies from the host to a device that nobody waits for."""

import os
import stat
from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.payload._codec import Entry

ALIGNMENT = 16
"""Bytes: what is sent begins at multiples, and takes as many."""

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


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host, which is there when the stream has been waited for."""
    if tensor.device.type != "cuda":
        return tensor
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)


def padded(size: int) -> int:
    """Bytes that an array of a size takes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def read_file(path: str | PathLike[str], device: torch.device) -> torch.Tensor:
    """Reads a file into memory that the device copies from.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no regular file, or became shorter meanwhile.
    """
    # A FIFO that nobody writes to is no reason to wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{os.fspath(path)} is not a regular file")
        pinned = device.type == "cuda"
        data = torch.empty(found.st_size, dtype=torch.uint8, pin_memory=pinned)
        left = memoryview(data.numpy())
        while left:
            size = os.readv(descriptor, [left])
            if not size:
                raise ValueError(f"{os.fspath(path)} became shorter while it was read")
            left = left[size:]
    finally:
        os.close(descriptor)
    return data


class Held(NamedTuple):
    """An artefact: its bytes on the host, and a tensor of them where a device can copy from it."""

    data: memoryview
    tensor: torch.Tensor | None

    def payload(self, entry: Entry) -> memoryview:
        """The payload of an entry."""
        return self.data[entry.begin : entry.end]

    def send(self, entries: Sequence[Entry], device: torch.device) -> torch.Tensor:
        """Copies payloads to the device, one behind the other."""
        size, at = sum(entry.end - entry.begin for entry in entries), 0
        if self.tensor is None:
            staging = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
            for entry in entries:
                end = at + entry.end - entry.begin
                staging.numpy()[at:end] = np.frombuffer(self.payload(entry), np.uint8)
                at = end
            return staging.to(device, non_blocking=True)
        sent = torch.empty(size, dtype=torch.uint8, device=device)
        for entry in entries:
            end = at + entry.end - entry.begin
            sent[at:end].copy_(self.tensor[entry.begin : entry.end], non_blocking=True)
            at = end
        return sent
