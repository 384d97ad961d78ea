# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes payloads of `int4`, `int8` and the fallback of `ecsq` on the device."""

import math
from collections.abc import Iterator, Sequence
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

_MOST_OUTPUTS = 65535  # of a launch: programs of the second axis
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
        table, begin = [], 0
        for output in outputs:
            count = math.prod(output.entry.shape)
            self._check(output, form.size(count))
            table.append([begin + int(form.fallback), count, *output.place])
            begin += form.size(count)
        self.table: _Table = np.array(table, np.int64).reshape(len(outputs), _COLUMNS)
        self.parts = list(self._alike())
        found = sum(blocks * len(numbers) for numbers, blocks in self.parts)
        self.scratch = begin + 8 * _COLUMNS * len(outputs) + found
        self.scratch += ALIGNMENT * (1 + len(self.parts))

    def _alike(self) -> Iterator[tuple[list[int], int]]:
        """Outputs of a launch, by number, and the blocks of the largest: others have half of it.

        So the programs are at most twice as many as blocks.
        """
        alike: dict[int, list[int]] = {}
        blocks = (-(-self.table[:, 1] // BLOCK)).tolist()
        for number, count in enumerate(blocks):
            if count:
                alike.setdefault(count.bit_length(), []).append(number)
        for numbers in alike.values():
            for first in range(0, len(numbers), _MOST_OUTPUTS):
                part = numbers[first : first + _MOST_OUTPUTS]
                yield part, max(blocks[number] for number in part)

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
        self.found: list[torch.Tensor] = []
        if not self.parts:
            return
        data = self.held.send([output.entry for output in self.outputs], device)
        for numbers, blocks in self.parts:
            found = torch.zeros(len(numbers), blocks, dtype=torch.uint8, device=device)
            self.found.append(found)
            integers_kernel[(blocks, len(numbers))](
                data,
                send(self.table[numbers], device),
                slots,
                found,
                form.size(BLOCK) - int(form.fallback),
                GROUP=form.group,
                BITS=form.bits,
                FALLBACK=form.fallback,
                DTYPE=form.dtype,
                SIZE=SIZES[form.dtype],
                SPLIT=any(self.outputs[number].split for number in numbers),
                BLOCK=BLOCK,
                num_warps=4,
                enable_fp_fusion=False,
            )

    def finish(self) -> bool:
        """Waits, and refuses what is broken; nothing is written again.

        Raises:
            PayloadError: A block breaks a rule. What the tensors hold is not defined.
        """
        for (numbers, blocks), broken in zip(self.parts, self.found, strict=True):
            found = broken.cpu().numpy()
            if found.any():
                place, block = divmod(int(found.argmax()), blocks)
                entry = self.outputs[numbers[place]].entry
                raise PayloadError(
                    f"the payload of {entry.codec} has a scale, a code or a filled half of a byte "
                    f"that breaks the format, in the block of element {block * BLOCK}",
                    tensor=entry.name,
                )
        return False
