# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Devices that kernels run on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import FailedPreconditionError, InvalidArgumentError
from kvcompress.gpu._entropy_kernel import entropy_kernel


def is_interpreted() -> bool:
    """Whether Triton was imported to run kernels on the CPU."""
    return not isinstance(entropy_kernel, triton.JITFunction)


def has_ptx(device: torch.device) -> bool:
    """Whether kernels may have instructions of NVIDIA's devices."""
    return bool(device.type == "cuda" and torch.version.hip is None)


@contextmanager
def on_stream(device: torch.device, stream: "torch.cuda.Stream | None") -> Iterator[None]:
    """Makes a device and a stream of it the current ones; without a stream the device's own.

    Raises:
        FailedPreconditionError: The stream records a CUDA graph. What the host does in a call, such
            as reading payloads, would not be in it.
    """
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), torch.cuda.stream(stream):
        if torch.cuda.is_current_stream_capturing():
            raise FailedPreconditionError(
                "a CUDA graph cannot capture a call: make it before, and capture what uses its "
                "tensors"
            )
        yield


def require_device(device: str | torch.device) -> torch.device:
    """Returns a device with its number.

    Raises:
        InvalidArgumentError: It is not one for Triton as it was imported.
    """
    if (torch.device(device).type == "cpu") != is_interpreted():
        raise InvalidArgumentError(
            f"the device {device} needs Triton {'without' if is_interpreted() else 'with'} "
            "TRITON_INTERPRET=1, which is read when it is imported"
        )
    return torch.empty(0, device=device).device
