# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes payloads of `int4`, `int8` and the fallback of `ecsq` on the device."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._integers_kernel import integers_kernel
from kvcompress.gpu._place import Output, within
from kvcompress.gpu._upload import send
from kvcompress.payload import PayloadError
from kvcompress.payload._dtypes import SIZES

BLOCK = 4096
"""Elements of a block, of which a program decodes one."""

_Table = npt.NDArray[np.int64]


class Form(NamedTuple):
    """What the payloads of a launch have in common."""

    bits: int
    group: int
    fallback: bool  # of `ecsq`: each group has its scale before its codes
    dtype: str

    def size(self, count: int) -> int:
        """Bytes of a payload of so many elements."""
        groups = -(-count // self.group)
        return int(self.fallback) + 2 * groups + -(-count * self.bits // 8)


class IntegersDecoding:
    """Payloads of one form that are being decoded.

    Args:
        form: Theirs.
        data: The artefact.
        outputs: Of the payloads, whose sizes fit them.

    Attributes:
        scratch: Bytes on the device, besides what the elements take.
    """

    def __init__(self, form: Form, data: memoryview, outputs: Sequence[Output]) -> None:
        """Plans the launch."""
        self.form, self.outputs, self.data = form, outputs, data
        tables, begin = [np.zeros((0, 4), np.int64)], 0
        for number, output in enumerate(outputs):
            count = math.prod(output.entry.shape)
            self._check(output, form.size(count))
            firsts = np.arange(0, count, BLOCK)
            counts = np.minimum(count - firsts, BLOCK)
            at = begin + int(form.fallback) + firsts // BLOCK * (form.size(BLOCK) - form.fallback)
            table = np.stack([np.full(len(firsts), number), at, firsts, counts], 1)
            tables.append(table[within(output, firsts, firsts + counts)])
            begin += form.size(count)
        self.blocks: _Table = np.concatenate(tables)
        self.scratch = begin + 36 * len(self.blocks) + 8 * 14 * len(outputs)

    def _check(self, output: Output, size: int) -> None:
        """Requires the one size of a payload."""
        entry = output.entry
        if entry.end - entry.begin != size:
            raise PayloadError(
                f"the payload of {entry.codec} has {entry.end - entry.begin} bytes, and its shape "
                f"needs {size}",
                tensor=entry.name,
            )

    def launch(self, slots: torch.Tensor) -> None:
        """Sends the payloads and launches the kernel.

        Args:
            slots: i64, where tokens go, -1 for nowhere; as many as any output needs.
        """
        device = slots.device
        payloads = [
            np.frombuffer(self.data[o.entry.begin : o.entry.end], "u1") for o in self.outputs
        ]
        self.found = torch.zeros(len(self.blocks), dtype=torch.int32, device=device)
        if not len(self.blocks):
            return
        integers_kernel[(len(self.blocks),)](
            send(np.concatenate(payloads), device),
            send(self.blocks, device),
            send(np.array([output.place for output in self.outputs], np.int64), device),
            slots,
            self.found,
            GROUP=self.form.group,
            BITS=self.form.bits,
            FALLBACK=self.form.fallback,
            DTYPE=self.form.dtype,
            SIZE=SIZES[self.form.dtype],
            SPLIT=any(output.split for output in self.outputs),
            BLOCK=BLOCK,
            num_warps=4,
            enable_fp_fusion=False,
        )

    def finish(self) -> bool:
        """Waits, and refuses what is broken; nothing is written again.

        Raises:
            PayloadError: A block breaks a rule. What the tensors hold is not defined.
        """
        found = self.found.cpu().numpy()
        if not found.any():
            return False
        number, _, first, _ = self.blocks[int(found.argmax())]
        entry = self.outputs[number].entry
        raise PayloadError(
            f"the payload of {entry.codec} has a scale, a code or a filled half of a byte that "
            f"breaks the format, in the block of element {first}",
            tensor=entry.name,
        )
