# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes payloads of `int4`, `int8` and the fallback of `ecsq` on the device."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._integers_kernel import integers_kernel
from kvcompress.gpu._place import Output
from kvcompress.gpu._upload import ALIGNMENT, Held, send
from kvcompress.payload import PayloadError
from kvcompress.payload._dtypes import SIZES

BLOCK = 4096
"""Elements of a block, of which a program decodes one."""

_COLUMNS = 16  # of an output: its first byte, its elements, and its place
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
        held: The artefact.
        outputs: Of the payloads, whose sizes fit them.

    Attributes:
        scratch: Bytes on the device, besides what the elements take.
    """

    def __init__(self, form: Form, held: Held, outputs: Sequence[Output]) -> None:
        """Plans the launch."""
        self.form, self.outputs, self.held = form, outputs, held
        table, begin, most = [], 0, 0
        for output in outputs:
            count = math.prod(output.entry.shape)
            self._check(output, form.size(count))
            table.append([begin + int(form.fallback), count, *output.place])
            begin += form.size(count)
            most = max(most, count)
        self.table: _Table = np.array(table, np.int64).reshape(len(outputs), _COLUMNS)
        self.blocks = -(-most // BLOCK)
        self.scratch = begin + (self.blocks + 8 * _COLUMNS) * len(outputs) + ALIGNMENT

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
        device, form = slots.device, self.form
        self.found = torch.zeros(len(self.outputs), self.blocks, dtype=torch.uint8, device=device)
        if not self.blocks:
            return
        integers_kernel[(self.blocks, len(self.outputs))](
            self.held.send([output.entry for output in self.outputs], device),
            send(self.table, device),
            slots,
            self.found,
            form.size(BLOCK) - int(form.fallback),
            GROUP=form.group,
            BITS=form.bits,
            FALLBACK=form.fallback,
            DTYPE=form.dtype,
            SIZE=SIZES[form.dtype],
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
        number, block = divmod(int(found.argmax()), self.blocks)
        entry = self.outputs[number].entry
        raise PayloadError(
            f"the payload of {entry.codec} has a scale, a code or a filled half of a byte that "
            f"breaks the format, in the block of element {block * BLOCK}",
            tensor=entry.name,
        )
