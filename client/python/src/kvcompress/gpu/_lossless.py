# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes payloads of `lossless` on the device."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _lossless_kernels as kernels
from kvcompress.gpu._device import has_ptx
from kvcompress.gpu._place import Output, cut_by_size, within
from kvcompress.gpu._upload import ALIGNMENT, Held, send
from kvcompress.payload import PayloadError
from kvcompress.payload._dtypes import SIZES
from kvcompress.payload._lossless import BLOCK, least

_ELEMENTS = 1024  # of a program
_MODEL = 4 * (4096 + 256 + 2) + 32  # bytes on the device of a coded plane, besides its content
_DECODED = {"F32": "16", "F16": "16", "BF16": "16", "F64": "64"}


class Plane(NamedTuple):
    """A plane of a block: byte in the data, size, and whether it is coded."""

    byte: int
    size: int
    coded: bool


class Block(NamedTuple):
    """A block of a payload that has a token of the range."""

    output: int
    first: int
    elements: int
    planes: list[Plane]


class LosslessDecoding:
    """Payloads of one type of elements that are being decoded.

    Args:
        held: The artefact.
        outputs: Of the payloads.
        most: Bytes of the scratch memory for decoded planes. A block is decoded even where it needs
            more.

    Attributes:
        scratch: Bytes on the device, besides what the elements take.

    Raises:
        PayloadError: A payload breaks a rule.
    """

    def __init__(self, held: Held, outputs: Sequence[Output], most: int) -> None:
        """Reads the payloads, and plans the launches."""
        self.held, self.outputs = held, outputs
        self.dtype = outputs[0].entry.dtype
        begin, blocks = 0, []
        for number, output in enumerate(outputs):
            entry = output.entry
            blocks += _read_blocks(held.payload(entry), output, number, begin)
            begin += entry.end - entry.begin
        self.parts = _cut(blocks, most)
        sizes = [_coded_bytes(part) for part in self.parts]
        self.scratch = begin + 8 * 14 * len(outputs) + sum(size for _, size in sizes)
        # Rows of blocks and planes, and the byte that no scratch memory is without.
        self.scratch += sum(24 * len(part) * (1 + SIZES[self.dtype]) + 1 for part in self.parts)
        self.scratch += ALIGNMENT * (1 + 3 * len(self.parts))

    def launch(self, slots: torch.Tensor) -> None:
        """Sends the payloads and launches the kernels.

        Args:
            slots: i64, where tokens go, -1 for nowhere; as many as any output needs.
        """
        self.found: list[tuple[list[Block], torch.Tensor]] = []
        if not self.parts:
            return
        data = self.held.send([each.entry for each in self.outputs], slots.device)
        places = send(np.array([each.place for each in self.outputs], np.int64), slots.device)
        for part in self.parts:
            self._launch(part, data, places, slots)

    def _launch(
        self, part: list[Block], data: torch.Tensor, places: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Decodes blocks that share the scratch memory."""
        device = slots.device
        coded, rows, at = [], [], 0
        holders = []
        for block in part:
            for plane in block.planes:
                if plane.coded:
                    coded.append([plane.byte, plane.size, block.elements, at])
                    holders.append(block)
                    rows.append([1, at, 1])
                    at += block.elements
                else:
                    rows.append([0, plane.byte, int(plane.size > 1)])
        scratch = torch.empty(at + 1, dtype=torch.uint8, device=device)
        if coded:
            self.found.append((holders, self._decode(data, coded, scratch)))
        blocks = [[block.output, block.first, block.elements] for block in part]
        most = max(block.elements for block in part)
        kernels.planes_kernel[(len(part), -(-most // _ELEMENTS))](
            data,
            scratch,
            send(np.array(blocks, np.int64), device),
            send(np.array(rows, np.int64), device),
            places,
            slots,
            SIZE=SIZES[self.dtype],
            FORM=_DECODED.get(self.dtype, "bytes"),
            SPLIT=any(output.split for output in self.outputs),
            BLOCK=_ELEMENTS,
            num_warps=4,
        )

    def _decode(
        self, data: torch.Tensor, coded: list[list[int]], scratch: torch.Tensor
    ) -> torch.Tensor:
        """Decodes coded planes; returns which of them are broken."""
        device, count = data.device, len(coded)

        def empty(*shape: int) -> torch.Tensor:
            return torch.empty(*shape, dtype=torch.int32, device=device)

        frequencies = torch.zeros(count, 256, dtype=torch.int32, device=device)
        planes, tables = send(np.array(coded, np.int64), device), empty(count, 4096)
        begins, found = empty(count), empty(count)
        kernels.models_kernel[(count,)](
            data, planes, frequencies, tables, begins, found, num_warps=4
        )
        kernels.coded_bytes_kernel[(count,)](
            data,
            planes,
            tables,
            begins,
            scratch,
            found,
            PTX=has_ptx(device),
            num_warps=1,
        )
        return found

    def finish(self) -> bool:
        """Waits, and refuses what is broken; nothing is written again.

        Raises:
            PayloadError: A plane breaks a rule. What the tensors hold is not defined.
        """
        for holders, broken in self.found:
            found = broken.cpu().numpy()
            if found.any():
                block = holders[int(found.argmax())]
                entry = self.outputs[block.output].entry
                raise PayloadError(
                    f"the payload of {entry.codec} has coded bytes that break the format, in the "
                    f"block of element {block.first}",
                    tensor=entry.name,
                )
        return False


def _coded_bytes(part: list[Block]) -> tuple[int, int]:
    """How many planes are coded, and what they take of the device's memory."""
    counts = [block.elements for block in part for plane in block.planes if plane.coded]
    return len(counts), sum(counts) + _MODEL * len(counts)


def _cut(blocks: list[Block], most: int) -> list[list[Block]]:
    """Cuts blocks into parts whose coded planes take at most so many bytes."""
    sizes = [_coded_bytes([block])[1] for block in blocks]
    return [blocks[part] for part, _ in cut_by_size(sizes, most)]


def _read_blocks(payload: memoryview, output: Output, number: int, begin: int) -> list[Block]:
    """Reads where planes are, of a payload that begins at a byte of the data on the device."""
    entry = output.entry
    size = SIZES[entry.dtype]

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise PayloadError(f"the payload of lossless {what}", tensor=entry.name)

    blocks, position, elements = [], 0, math.prod(entry.shape)
    firsts = np.arange(0, elements, BLOCK)
    wanted = within(output, firsts, np.minimum(firsts + BLOCK, elements)).tolist()
    for first, want in zip(firsts.tolist(), wanted, strict=True):
        count = min(BLOCK, elements - first)
        require(len(payload) - position >= 4 * size, "ends within a block")
        sizes = np.frombuffer(payload, "<u4", size, position).tolist()
        require(all(0 < each <= count for each in sizes), "has a plane of a bad size")
        end = position + max(4 * size + sum(sizes), least(count, size))
        require(end <= len(payload), "ends within a block")
        position += 4 * size
        planes = []
        for each in sizes:
            planes.append(Plane(begin + position, each, 1 < each < count))
            position += each
        require(not any(payload[position:end]), "has a block that ends with other bytes than zeros")
        position = end
        if want:
            blocks.append(Block(number, first, count, planes))
    require(position == len(payload), "goes on after its last block")
    return blocks
