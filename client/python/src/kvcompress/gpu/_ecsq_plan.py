# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The tables that kernels take of tensors which are encoded together with `ecsq`."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._angles import Angles
from kvcompress.gpu._ecsq import COLUMNS, block_shapes, tensor_row
from kvcompress.gpu._ecsq_choices import Job
from kvcompress.gpu._place import Range, cut_by_size, whole_output
from kvcompress.gpu._upload import send, send_all
from kvcompress.payload._ecsq import read_fields

NUMBER_BYTES = 14
"""Of scratch memory for a number: itself, a word, an escape, and low bits."""

ROWS = 64
"""Tokens of a tile."""

_Table = npt.NDArray[np.int64]


class Plan:
    """Tensors of one type, and their blocks.

    Args:
        jobs: The tensors, each with a rotation if it has one.
        most: Bytes of the scratch memory; a block is encoded even where it needs more.

    Attributes:
        jobs: The tensors.
        device: Theirs.
        blocks: i64 [blocks, COLUMNS], as `_ecsq_quantize_kernels` takes them.
        elements: i64 [blocks, 2], of each its first element in the tensor, and how many.
        widths: Channels of each block.
        channels: Of all blocks.
        rows: Tokens of heads of all tensors with norms.
        sink_bytes: Of the integer sinks of all blocks.
        parts: Blocks that share the scratch memory.
        numbers: Of each block.
        ends: i64 [jobs, 4], of each tensor its first block and channel, and those behind its last.
        sent: The blocks on the device.
        places: i64 [jobs, 14] on the device, where elements are read.
        tensors: i64 [jobs, 12] on the device, as `_ecsq_quantize_kernels` takes them.
        rotations: f32 on the device, cosines and sines.
    """

    def __init__(self, jobs: Sequence[Job], most: int) -> None:
        """Lists the blocks."""
        self.jobs, self.device = jobs, jobs[0].tensor.device
        tables, elements, ends = [], [], []
        self.channels = self.rows = sinks = block = 0
        for number, job in enumerate(jobs):
            heads, tokens, width = job.shape
            shapes = block_shapes(heads, tokens, width)
            table = np.zeros((len(shapes), COLUMNS), np.int64)
            table[:, 17], table[:, 5], table[:, 8], table[:, 6] = shapes.T
            table[:, 7] = (table[:, 8] == 0) & (not job.norms)
            table[:, 16] = number
            row = table[:, 17] * tokens + table[:, 8]
            own = table[:, 5] * width
            table[:, 20] = self.channels + np.cumsum(own) - own
            table[:, 21] = self.rows + row
            integers = table[:, 7] * (2 * table[:, 5] + own)
            table[:, 0] = sinks + np.cumsum(integers) - integers - 4 * np.minimum(own, 32)
            elements.append(np.stack([row * width, own * table[:, 6]], 1))
            channels = self.channels + int(own.sum())
            ends.append([block, self.channels, block + len(table), channels])
            block, self.channels = block + len(table), channels
            self.rows += heads * tokens * job.norms
            sinks += int(integers.sum())
            tables.append(table)
        self.blocks: _Table = np.concatenate(tables)
        self.elements: _Table = np.concatenate(elements)
        self.ends: _Table = np.array(ends, np.int64)
        self.sink_bytes = sinks
        self._place_numbers(most)
        self._send()

    def _place_numbers(self, most: int) -> None:
        """Cuts the blocks into parts, and assigns each its place in the scratch memory."""
        widths = np.array([job.shape[2] for job in self.jobs])[self.blocks[:, 16]]
        norms = np.array([job.norms for job in self.jobs])[self.blocks[:, 16]]
        heads, tokens, sinks = (self.blocks[:, i] for i in (5, 6, 7))
        self.widths: _Table = heads * widths
        self.numbers: _Table = self.widths * (2 + tokens - sinks) + heads * tokens * norms
        sizes = (NUMBER_BYTES * self.numbers).tolist()
        self.parts = [part for part, _ in cut_by_size(sizes, most)]
        for part in self.parts:
            self.blocks[part, 9] = np.cumsum(self.numbers[part]) - self.numbers[part]

    def _send(self) -> None:
        """Sends the tables, and makes cosines and sines; the headers change with the steps."""
        self._place_angles()
        outputs = [whole_output(j.source.entry, j.tensor, Range(0, j.shape[1])) for j in self.jobs]
        self.sent, self.places = send_all(
            [self.blocks, np.array([output.place for output in outputs], np.int64)], self.device
        )
        self.send_headers()

    def send_headers(self) -> None:
        """Sends what kernels take of the headers of payloads."""
        rows = []
        for job, angle in zip(self.jobs, self.angles, strict=True):
            fields, _ = read_fields(job.header(), job.entry)
            row = tensor_row(fields, *job.shape[1:])
            row[0], row[-1] = job.kernel_flags, angle
            rows.append(row)
        self.tensors = send(np.array(rows, np.int64), self.device)

    def _place_angles(self) -> None:
        """Makes cosines and sines, which tensors that rotate alike share."""
        angles = Angles()
        self.angles = []
        for job in self.jobs:
            turn = read_fields(job.header(), job.entry)[0].rotation
            self.angles.append(
                0 if turn is None else angles.place(turn.increments, 0, job.shape[1])
            )
        self.rotations = angles.make(self.device)

    def tiles(self) -> _Table:
        """Tiles of tokens as squares_kernel takes them, of tensors with norms."""
        tables, row = [np.zeros((0, 4), np.int64)], 0
        for number, job in enumerate(self.jobs):
            if job.norms:
                count = job.shape[0] * job.shape[1]
                firsts = np.arange(0, count, ROWS)
                fixed = np.tile(np.array([number, row, count]), (len(firsts), 1))
                tables.append(np.column_stack([fixed[:, :2], firsts, fixed[:, 2]]))
                row += count
        return np.concatenate(tables)

    def sink_heads(self) -> _Table:
        """Heads as sinks_kernel takes them."""
        with_sinks = np.flatnonzero(self.blocks[:, 7])
        heads = self.blocks[with_sinks, 5]
        number = np.repeat(with_sinks, heads)
        head = np.arange(len(number)) - np.repeat(np.cumsum(heads) - heads, heads)
        begins = self.blocks[number, 0] + 4 * np.minimum(self.widths[number], 32)
        return np.stack([number, head, begins], 1)

    def scales(self) -> torch.Tensor:
        """f32 [., rows], what values are multiplied with, one after the other."""
        lists = [job.scales for job in self.jobs if job.norms]
        if not lists:
            return torch.ones(0, 0, device=self.device)
        return torch.stack([torch.cat(scales) for scales in zip(*lists, strict=True)])
