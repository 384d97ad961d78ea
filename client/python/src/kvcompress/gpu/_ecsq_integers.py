# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What `ecsq` stores of elements that are not coded: exceptions, and tensors of integers."""

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._ecsq_choices import Job

_GROUP = 64


def exception_list(at: npt.NDArray[np.int64], elements: npt.NDArray[np.uint8]) -> bytes:
    """The exceptions of a block: elements u8 [., bytes], at places that ascend."""
    gaps = np.diff(at, prepend=-1) - 1
    rows = np.zeros((len(at), 3 + elements.shape[1]), np.uint8)
    more = np.stack([gaps >= 1 << 7, gaps >= 1 << 14], 1)
    for k in range(3):
        rows[:, k] = gaps >> (7 * k) & 127
    rows[:, :2] |= (more << 7).astype(np.uint8)
    rows[:, 3:] = elements
    kept = np.ones(rows.shape, bool)
    kept[:, 1:3] = more
    return rows[kept].tobytes()


def integer_payload(job: Job) -> torch.Tensor:
    """The payload of mode 0 of a tensor: groups of 64 integers, each with its scale first."""
    values = job.tensor.reshape(-1).to(torch.float32)
    count = len(values)
    groups = torch.nn.functional.pad(values, (0, -count % _GROUP)).reshape(-1, _GROUP)
    # Where the divisor is a number of the host, a device multiplies by its inverse.
    divisor = torch.full((1,), 127.0, device=values.device)
    bits = ((groups.abs().amax(1) / divisor).view(torch.int32) + 0xFFFF) >> 16
    scales = torch.where(bits == 0, 0x3F80, bits)[:, None]
    ratio = (groups / (scales << 16).view(torch.float32)).abs()
    whole = ratio.trunc()
    whole += ((ratio - whole) >= 0.5).to(torch.float32)
    whole = torch.copysign(whole.clamp(max=127), groups) * (bits != 0)[:, None]
    both = [bits.to(torch.int16)[:, None].view(torch.uint8), whole.to(torch.int8).view(torch.uint8)]
    flat = torch.cat(both, 1).reshape(-1)
    mode = torch.zeros(1, dtype=torch.uint8, device=values.device)
    return torch.cat([mode, flat])[: 1 + count + 2 * len(groups)]


def restore_integers(payload: torch.Tensor, job: Job) -> torch.Tensor:
    """What a payload of mode 0 restores to, in the shape of the tensor."""
    count = job.tensor.numel()
    groups = torch.nn.functional.pad(payload[1:], (0, -count % _GROUP)).reshape(-1, 2 + _GROUP)
    scales = (groups[:, :2].contiguous().view(torch.int16).to(torch.int32) << 16).view(
        torch.float32
    )
    values = groups[:, 2:].contiguous().view(torch.int8).to(torch.float32) * scales
    most = torch.finfo(job.tensor.dtype).max
    flat = values.reshape(-1)[:count].clamp(-most, most)
    return flat.to(job.tensor.dtype).reshape(job.tensor.shape)
