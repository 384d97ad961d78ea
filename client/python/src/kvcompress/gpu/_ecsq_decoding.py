# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes payloads of `ecsq` on the device: buffers, launches, and what the kernels found."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _ecsq_kernels as kernels
from kvcompress.gpu._angles import Angles
from kvcompress.gpu._basis import slot_table
from kvcompress.gpu._device import has_ptx
from kvcompress.gpu._ecsq import COLUMNS, TENSOR_COLUMNS, EcsqPayload
from kvcompress.gpu._place import Output, cut_by_size
from kvcompress.gpu._upload import ALIGNMENT, Held, send
from kvcompress.payload import PayloadError
from kvcompress.payload._dtypes import SIZES

_ELEMENTS = 1024  # of a program

_Table = npt.NDArray[np.int64]


class EcsqDecoding:
    """Payloads of one type of elements that are being decoded.

    Args:
        held: The artefact.
        outputs: Of the payloads, all of mode 1.
        most: Bytes of the scratch memory for integers of blocks. A block is decoded even where it
            needs more.

    Attributes:
        payloads: What was read of each.
        blocks: i64 [blocks, COLUMNS] of all of them.
        scratch: Bytes on the device, besides what the elements take.

    Raises:
        PayloadError: A payload breaks a rule.
    """

    _ENTROPY: Any = kernels.ecsq_entropy_kernel
    _JOINT = False
    """Whether elements are there before norms and rotation, in place of quanta."""

    def __init__(self, held: Held, outputs: Sequence[Output], most: int) -> None:
        """Reads the payloads, and plans the launches."""
        self.held, self.outputs = held, outputs
        self._read_payloads()
        self._place_angles()
        begin, tables, numbers = 0, [np.zeros((0, COLUMNS), np.int64)], [np.zeros(0, np.int64)]
        for number, payload in enumerate(self.payloads):
            table = payload.blocks.copy()
            table[:, [0, 19]] += begin
            table[:, 16] = number
            tables.append(table)
            numbers.append(payload.numbers)
            begin += payload.output.entry.end - payload.output.entry.begin
        self.blocks: _Table = np.concatenate(tables)
        self.parts = self._cut(np.concatenate(numbers), most)
        fixed = 8 * (TENSOR_COLUMNS + 14) * len(outputs) + 4 * 56 * 2048
        self.scratch = begin + fixed + (8 * COLUMNS + 4) * len(self.blocks)
        self.scratch += 4 * self.numbers + 8 * self.angles.count + 8 * self.angles.increments
        self.scratch += ALIGNMENT * (4 + len(self.parts) + self.angles.turns)

    def _read_payloads(self) -> None:
        """Reads the payloads."""
        self.payloads: Sequence[EcsqPayload] = [
            EcsqPayload(self.held.data, output) for output in self.outputs
        ]

    def _place_angles(self) -> None:
        """Shares cosines and sines among tensors that rotate alike."""
        self.angles = Angles()
        for payload in self.payloads:
            turn = payload.fields.rotation
            if turn is None:
                continue
            first, end = payload.output.place[12:]
            payload.row[-1] = self.angles.place(turn.increments, first, end - first)

    def _cut(self, numbers: _Table, most: int) -> list[slice]:
        """Cuts blocks into parts of at most so many bytes, and assigns each its place."""
        parts = [part for part, _ in cut_by_size((4 * numbers).tolist(), most)]
        self._place_numbers(parts, numbers)
        return parts

    def _place_numbers(self, parts: list[slice], numbers: _Table) -> None:
        """Assigns blocks the places of their numbers, and finds how many a part has at most."""
        for part in parts:
            self.blocks[part, 9] = np.cumsum(numbers[part]) - numbers[part]
        self.numbers = max((int(numbers[part].sum()) for part in parts), default=0)

    def launch(self, slots: torch.Tensor) -> None:
        """Sends the payloads and launches the kernels.

        Args:
            slots: i64, where tokens go, -1 for nowhere; as many as any output needs.
        """
        device = slots.device
        self.found = torch.zeros(len(self.blocks), dtype=torch.int32, device=device)
        if not len(self.blocks):
            return
        data = self.held.send([each.entry for each in self.outputs], device)
        tensors = send(np.array([each.row for each in self.payloads], np.int64), device)
        places = send(np.array([each.place for each in self.outputs], np.int64), device)
        tables = send(slot_table(), device)
        rotations = self.angles.make(device)
        scratch = torch.empty(self.numbers, dtype=torch.int32, device=device)
        for part in self.parts:
            blocks, found = send(self.blocks[part], device), self.found[part]
            self._launch(
                part, [data, blocks, tensors], [places, slots], [tables, rotations, scratch], found
            )

    def _launch(
        self,
        part: slice,
        payloads: list[torch.Tensor],
        targets: list[torch.Tensor],
        tables: list[torch.Tensor],
        found: torch.Tensor,
    ) -> None:
        """Decodes blocks that share the scratch memory."""
        symbols, rotations, scratch = tables
        dtype = self.outputs[0].entry.dtype
        form = {
            "DTYPE": dtype,
            "SIZE": SIZES[dtype],
            "SPLIT": any(output.split for output in self.outputs),
        }
        count = part.stop - part.start
        self._launch_integers(part, payloads, symbols, scratch, found)
        widths = np.array([payload.row[6] for payload in self.payloads])
        blocks = self.blocks[part]
        most = int((blocks[:, 5] * blocks[:, 6] * widths[blocks[:, 16]]).max())
        kernels.ecsq_elements_kernel[(count, -(-most // _ELEMENTS))](
            *payloads,
            *targets,
            rotations,
            scratch,
            found,
            **form,
            JOINT=self._JOINT,
            BLOCK=_ELEMENTS,
            num_warps=4,
            enable_fp_fusion=False,
        )
        if blocks[:, 18].any():
            kernels.ecsq_exceptions_kernel[(count,)](
                *payloads, *targets, found, **form, num_warps=1, enable_fp_fusion=False
            )

    def _launch_integers(
        self,
        part: slice,
        payloads: list[torch.Tensor],
        symbols: torch.Tensor,
        scratch: torch.Tensor,
        found: torch.Tensor,
    ) -> None:
        """Decodes the integers of blocks."""
        self._ENTROPY[(len(found),)](
            *payloads,
            symbols,
            scratch,
            found,
            PTX=has_ptx(found.device),
            num_warps=1,
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
        at = int(found.argmax())
        number = int(self.blocks[at, 16])
        before = int((self.blocks[:at, 16] == number).sum())
        entry = self.outputs[number].entry
        raise PayloadError(
            f"the payload of {entry.codec} has a block at byte "
            f"{self.payloads[number].begins[before]} that breaks the format",
            tensor=entry.name,
        )
