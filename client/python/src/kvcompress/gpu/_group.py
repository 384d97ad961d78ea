# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes the payload of a group on the device: buffers, launches, and what the kernels found."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _product_kernels as kernels
from kvcompress.gpu._basis import Basis, send
from kvcompress.gpu._entropy_kernel import entropy_kernel
from kvcompress.gpu._payload import LANES, Bits, Block, Payload
from kvcompress.gpu._place import Range
from kvcompress.payload import PayloadError
from kvcompress.payload._codec import Entry
from kvcompress.payload._dtypes import SIZES

_BITS = {2: torch.int16, 4: torch.int32}
_TABLE_CLASSES = 28
# Classes from here on often have levels beyond 127; a trellis makes levels twice as large.
_HIGH_CLASS, _HIGH_CLASS_TRELLIS = 36, 32
_ROTATIONS = 256  # angles of a program
_VECTOR = 8  # elements that kernels write at once where they can
_FIXED = 8  # numbers of a place, before those of its channels


class Rows(NamedTuple):
    """Blocks that are decoded together."""

    blocks: list[int]
    tokens: int


class GroupPlan:
    """How the blocks of a payload are decoded within so much memory.

    Attributes:
        low_width: Components of a row, whole steps of the product.
        high_width: Those at its front that may have levels of more than 8 bits.
        chunks: Blocks that hold a token of the range, in parts.
        scratch: Bytes on the device, of buffers that are freed after the call.
    """

    def __init__(self, basis: Basis, payload: Payload, tokens: Range, size: int, most: int) -> None:
        """Plans for a payload of `size` bytes and buffers of rows of `most` bytes.

        A block is decoded at once, even where it needs more.
        """
        self.basis, self.payload, self.tokens = basis, payload, tokens
        step = basis.tiling.components
        wanted = [
            i
            for i, block in enumerate(payload.blocks)
            if block.token < tokens.end and block.token + block.tokens > tokens.first
        ]
        runs = max((payload.blocks[i].runs for i in wanted), default=0)
        self.low_width = max(1, -(-runs * LANES // step)) * step
        padded = np.full(-(-len(payload.classes) // LANES) * LANES, -1000)
        padded[: len(payload.classes)] = payload.classes
        self.classes = padded.reshape(-1, LANES).max(1) + int(payload.offsets.max(initial=0))
        bound = _HIGH_CLASS_TRELLIS if payload.trellis else _HIGH_CLASS
        large = np.flatnonzero(self.classes[:runs] >= bound)
        self.high_width = LANES * (int(large[-1]) + 1) if len(large) else 0
        # Of the exact path, which needs more: levels in 32 bits and in binary64, and sums.
        row = 12 * self.low_width + 8 * basis.tiling.pairs + 4
        self.chunks = list(self._cut(wanted, most // row))
        rows = max((chunk.tokens for chunk in self.chunks), default=0)
        self.scratch = size + rows * row + self._tables(wanted)

    def _tables(self, wanted: list[int]) -> int:
        """Bytes of all that does not go with the rows of a part."""
        basis, payload, tiling = self.basis, self.payload, self.basis.tiling
        vectors = 4 * 8 * 2 * tiling.pairs * basis.basis_width
        angles = 8 * (self.tokens.end - self.tokens.first) * basis.angles
        of_tokens = 13 * len(payload.offsets)
        of_blocks = 80 * len(wanted) + 52 * len(self.tiles(wanted))
        of_pairs = 16 * basis.width + 8 * _FIXED * (basis.width // tiling.pairs)
        of_components = 8 * basis.group.components + 4 * LANES
        sinks = sum(each.nbytes + 8 * each.shape[2] for each in payload.sinks)
        exceptions = sum(36 * len(each.elements) for each in payload.exceptions)
        return sum(
            (vectors, angles, of_tokens, of_blocks, of_pairs, of_components, sinks, exceptions)
        )

    def _cut(self, wanted: list[int], most: int) -> Iterator[Rows]:
        """Cuts blocks into parts of at most so many rows, but of one block at least."""
        blocks: list[int] = []
        count = 0
        for i in wanted:
            tokens = self.payload.blocks[i].tokens
            if blocks and count + tokens > most:
                yield Rows(blocks, count)
                blocks, count = [], 0
            blocks.append(i)
            count += tokens
        if blocks:
            yield Rows(blocks, count)

    def tiles(self, blocks: list[int]) -> list[list[int]]:
        """Tiles of the rows of these blocks that are in the range, as the kernels take them."""
        tiles, row = [], 0
        for number, i in enumerate(blocks):
            block = self.payload.blocks[i]
            first = max(block.token, self.tokens.first)
            end = min(block.token + block.tokens, self.tokens.end)
            for token in range(first, end, self.basis.tiling.rows):
                count = min(self.basis.tiling.rows, end - token)
                where = token - self.tokens.first
                at = row + token - block.token
                tiles.append([at, count, where, block.batch, block.runs * LANES, number])
            row += block.tokens
        return tiles


class _Chunk(NamedTuple):
    """Blocks that were launched, and what the kernels found of each: broken, beyond 32 bits."""

    rows: Rows
    found: torch.Tensor


class GroupDecoding:
    """A payload that is being decoded on the device.

    Args:
        plan: For the payload.
        data: Bytes of the payload.
        slots: slot_table() on the device.
        outputs: Tensors [batches, heads, slots, channels] of any strides, by member.
        token_slots: Where each token of the range goes, -1 for nowhere.
        entry: Whose payload it is.

    Attributes:
        scratch: Bytes on the device, besides what the elements take.
    """

    def __init__(
        self,
        plan: GroupPlan,
        data: memoryview,
        slots: torch.Tensor,
        outputs: Mapping[int, torch.Tensor],
        token_slots: npt.NDArray[np.int64],
        entry: Entry,
    ) -> None:
        """Keeps what `launch` needs."""
        self.plan, self.slots, self.outputs, self._held = plan, slots, outputs, data
        self.entry, self.token_slots, self.scratch = entry, token_slots, plan.scratch
        self.dtype, self.device = entry.dtype, slots.device
        self.chunks: list[_Chunk] = []

    def _send(self, slots: torch.Tensor) -> None:
        """Sends what the kernels need."""
        plan, payload, device = self.plan, self.plan.payload, self.device
        self.data = send(np.frombuffer(self._held, np.uint8), device)
        self.classes = send(payload.classes, device)
        self.offsets = send(payload.offsets, device)
        self.low_runs = send((plan.classes >= _TABLE_CLASSES).astype(np.int32), device)
        self.factors = send(payload.factors[plan.tokens.first : plan.tokens.end], device)
        self.slots_sent = slots
        self._place(device)
        count = plan.tokens.end - plan.tokens.first
        self.rotations = torch.empty(max(1, 2 * count * plan.basis.angles), device=device)

    def _place(self, device: torch.device) -> None:
        """Lists where the channels of each tile of pairs lie."""
        table = self.plan.basis.places(self.outputs, self.plan.payload.units)
        self.tile_numbers = table[:, 0].tolist()
        runs = table[:, _FIXED:].reshape(-1, _VECTOR)
        self.aligned = bool(
            (table[:, 1] % 16 == 0).all()
            and (table[:, 2:4] % _VECTOR == 0).all()
            and (runs[:, 0] % _VECTOR == 0).all()
            and (np.diff(runs, axis=1) == 1).all()
        )
        self.places = send(table, device)

    def launch(self, slots: torch.Tensor) -> None:
        """Launches the kernels for all blocks, then copies sinks and exceptions.

        Args:
            slots: i64, where tokens go, -1 for nowhere; as many as the range has.
        """
        plan, basis = self.plan, self.plan.basis
        self._send(slots)
        count = (plan.tokens.end - plan.tokens.first) * basis.angles
        if count:
            kernels.rotation_kernel[(-(-count // _ROTATIONS),)](
                basis.increments,
                self.rotations,
                plan.payload.position + plan.tokens.first,
                plan.tokens.end - plan.tokens.first,
                basis.angles,
                BLOCK=_ROTATIONS,
                enable_fp_fusion=False,
            )
        for rows in plan.chunks:
            self.chunks.append(self._launch(rows))
        self._copy()

    def finish(self) -> bool:
        """Waits, refuses what is broken, and decodes in 64 bits what 32 do not hold.

        Returns:
            Whether there was such.

        Raises:
            PayloadError: A block breaks a rule. What the tensors hold is not defined.
        """
        beyond = []
        for chunk in self.chunks:
            found = chunk.found.cpu().numpy().T
            if found[0].any():
                block = chunk.rows.blocks[int(found[0].argmax())]
                raise PayloadError(
                    f"the payload of {self.entry.codec} has a block {block}, at byte "
                    f"{self.plan.payload.blocks[block].states - 16}, that breaks the format",
                    tensor=self.entry.name,
                )
            beyond += [block for block, far in zip(chunk.rows.blocks, found[1], strict=True) if far]
        most = max((chunk.rows.tokens for chunk in self.chunks), default=0)
        for rows in self.plan._cut(beyond, most):
            self._exact(rows)
        if beyond:
            self._copy()
        return bool(beyond)

    def _descriptors(self, rows: Rows) -> torch.Tensor:
        """Blocks as the entropy decoder takes them."""
        found, row = [], 0
        for i in rows.blocks:
            block: Block = self.plan.payload.blocks[i]
            sizes = [block.states, block.words, block.escapes, block.low, block.runs]
            found.append([*sizes, row, block.tokens, block.token, int(block.wide_escapes)])
            row += block.tokens
        return send(np.array(found, np.int64), self.device)

    def _entropy(self, rows: Rows, planes: list[torch.Tensor], *, whole: bool) -> _Chunk:
        """Decodes the levels of blocks to planes: low, high, and whole."""
        plan = self.plan
        found = torch.zeros(len(rows.blocks), 2, dtype=torch.int32, device=self.device)
        entropy_kernel[(len(rows.blocks),)](
            self.data,
            self._descriptors(rows),
            self.classes,
            self.offsets,
            self.low_runs,
            self.slots,
            *planes,
            found,
            plan.basis.group.components,
            plan.low_width,
            plan.high_width,
            TRELLIS=plan.payload.trellis,
            WHOLE=whole,
            PTX=self.device.type == "cuda" and torch.version.hip is None,
            num_warps=1,
            enable_fp_fusion=False,
        )
        return _Chunk(rows, found)

    def _finishing(self) -> list[Any]:
        """What kernels make elements of, up to the sizes."""
        basis = self.plan.basis
        tables = [self.factors, basis.channels, basis.columns, self.rotations]
        return [*tables, self.slots_sent, self.places]

    def _launch(self, rows: Rows) -> _Chunk:
        """Decodes blocks whose products 32 bits hold; marks the others."""
        plan, basis, tiling = self.plan, self.plan.basis, self.plan.basis.tiling

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        low = zeros(rows.tokens, plan.low_width, dtype=torch.int8)
        high = zeros(rows.tokens, max(1, plan.high_width), dtype=torch.int8)
        sums = zeros(rows.tokens, dtype=torch.int32)
        chunk = self._entropy(rows, [low, high, sums], whole=False)
        table = plan.tiles(rows.blocks)
        tiles = send(np.array(table, np.int64), self.device)
        high_ends = zeros(len(table), dtype=torch.int32)
        kernels.row_sums_kernel[(len(table),)](
            tiles,
            low,
            high,
            sums,
            high_ends,
            chunk.found,
            plan.low_width,
            plan.high_width,
            BM=tiling.rows,
            BK=tiling.components,
            num_warps=4,
            enable_fp_fusion=False,
        )
        kernels.product_kernel[(len(table) * len(self.tile_numbers),)](
            tiles,
            low,
            high,
            basis.planes,
            high_ends,
            sums,
            *self._finishing(),
            plan.low_width,
            plan.high_width,
            basis.basis_width,
            basis.width,
            basis.angles,
            len(self.tile_numbers),
            BM=tiling.rows,
            BK=tiling.components,
            NP=tiling.pairs,
            HIGH=plan.high_width > 0,
            DTYPE=self.dtype,
            ALIGNED=self.aligned,
            num_warps=8,
            num_stages=2 if torch.version.hip else 3,
            enable_fp_fusion=False,
        )
        return chunk

    def _exact(self, rows: Rows) -> None:
        """Decodes blocks again: sums of up to 2^49 are exact in binary64."""
        plan, basis, tiling = self.plan, self.plan.basis, self.plan.basis.tiling
        levels = torch.zeros(rows.tokens, plan.low_width, dtype=torch.int32, device=self.device)
        self._entropy(rows, [self.data, self.data, levels], whole=True)
        table = plan.tiles(rows.blocks)
        tiles = send(np.array(table, np.int64), self.device)
        wide = levels.to(torch.float64)
        for column, tile in enumerate(self.tile_numbers):
            vectors = basis.vectors(tile)[:, : plan.low_width]
            sums = (wide @ vectors.T).to(torch.float32)
            kernels.finish_kernel[(len(table),)](
                tiles,
                sums,
                *self._finishing(),
                basis.width,
                basis.angles,
                column,
                BM=tiling.rows,
                NP=tiling.pairs,
                DTYPE=self.dtype,
                ALIGNED=self.aligned,
                num_warps=4,
                enable_fp_fusion=False,
            )

    def _copy(self) -> None:
        """Puts sinks and exceptions into the tensors."""
        payload, tokens = self.plan.payload, self.plan.tokens
        for member, tensor in self.outputs.items():
            bits = tensor.view(_BITS[SIZES[self.dtype]])
            sinks = payload.sinks[member][:, :, tokens.first : tokens.end]
            slots = self.token_slots[: sinks.shape[2]]
            if (slots >= 0).any():
                at = send(slots[slots >= 0], self.device)
                bits[:, :, at] = self._send_bits(sinks[:, :, slots >= 0])
            if not payload.exceptions:
                continue
            found = payload.exceptions[member]
            shape = (bits.shape[0], bits.shape[1], len(payload.offsets), bits.shape[3])
            batch, head, token, channel = np.unravel_index(found.elements, shape)
            inside = (token >= tokens.first) & (token < tokens.end)
            slot = np.full(len(token), -1)
            slot[inside] = self.token_slots[token[inside] - tokens.first]
            if (slot >= 0).any():
                index = [each[slot >= 0] for each in (batch, head, slot, channel)]
                bits[tuple(send(each, self.device) for each in index)] = self._send_bits(
                    found.bits[slot >= 0]
                )

    def _send_bits(self, bits: Bits) -> torch.Tensor:
        """Sends bits of elements as integers with a sign, which torch computes with."""
        return send(bits.view(f"<i{bits.itemsize}"), self.device)
