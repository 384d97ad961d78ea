# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes the payload of a group on the device: buffers, launches, and what the kernels found."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _product_kernels as kernels
from kvcompress.gpu._basis import FIXED, Basis, are_aligned
from kvcompress.gpu._entropy_kernel import entropy_kernel
from kvcompress.gpu._payload import LANES, Bits, Payload
from kvcompress.gpu._place import Range
from kvcompress.gpu._upload import Held, padded, send_all
from kvcompress.payload import PayloadError
from kvcompress.payload._codec import Entry
from kvcompress.payload._dtypes import SIZES

_TABLE_CLASSES = 28
# Classes from here on often have levels beyond 127; a trellis makes levels twice as large.
_HIGH_CLASS, _HIGH_CLASS_TRELLIS = 36, 32
_ROTATIONS = 256  # angles of a program
_PATCHES = 1024  # elements of a program


_TILE = 7  # numbers of a tile of rows

_Numbers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Blocks that are decoded together, by number, and how many tokens they have."""

    blocks: _Numbers
    tokens: int


class GroupPlan:
    """How the blocks of a payload are decoded within so much memory.

    Attributes:
        low_width: Components of a row, whole steps of the product.
        high_width: Those at its front that may have levels of more than 8 bits.
        chunks: Blocks that hold a token of the range, in parts.
    """

    def __init__(self, basis: Basis, payload: Payload, tokens: Range, size: int, most: int) -> None:
        """Plans for a payload of `size` bytes and buffers of rows of `most` bytes.

        A block is decoded at once, even where it needs more.
        """
        self.basis, self.payload, self.tokens, self._most = basis, payload, tokens, most
        step, blocks = basis.tiling.components, payload.blocks
        wanted = np.flatnonzero(
            (blocks.token < tokens.end) & (blocks.token + blocks.tokens > tokens.first)
        )
        runs = int(blocks.runs[wanted].max(initial=0))
        self.low_width = max(1, -(-runs * LANES // step)) * step
        padded_classes = np.full(-(-len(payload.classes) // LANES) * LANES, -1000)
        padded_classes[: len(payload.classes)] = payload.classes
        self.classes = padded_classes.reshape(-1, LANES).max(1) + int(
            payload.offsets.max(initial=0)
        )
        bound = _HIGH_CLASS_TRELLIS if payload.trellis else _HIGH_CLASS
        large = np.flatnonzero(self.classes[:runs] >= bound)
        self.high_width = LANES * (int(large[-1]) + 1) if len(large) else 0
        row = self.low_width + max(1, self.high_width) + 4
        self.chunks = list(self._cut(wanted, most // row))
        self._size, self._wanted, self._row = size, wanted, row

    @property
    def scratch(self) -> int:
        """Bytes on the device, of buffers that are freed after the call."""
        rows = max((chunk.tokens for chunk in self.chunks), default=0)
        again = max((chunk.tokens for chunk in self.cut_exact(self._wanted)), default=0)
        return max(rows * self._row, again * self._exact_row) + self._tables()

    @property
    def _exact_row(self) -> int:
        """Bytes of a row of the exact path: levels in 32 bits and in binary64, and sums."""
        return 12 * self.low_width + 8 * self.basis.tiling.pairs + 4

    def _tables(self) -> int:
        """Bytes of all that does not go with the rows of a part."""
        basis, payload, tiling = self.basis, self.payload, self.basis.tiling
        wanted = self._wanted
        vectors = 4 * 8 * 2 * tiling.pairs * basis.basis_width
        angles = 8 * (self.tokens.end - self.tokens.first) * basis.angles
        of_tokens = 5 * len(payload.offsets)
        # As many tiles as there are rows of whole tiles, and one more of each block that is cut.
        tiles = sum(len(self.tiles(chunk.blocks)) for chunk in self.chunks) + len(wanted)
        of_blocks = 88 * len(wanted) + (8 * _TILE + 4) * tiles
        of_pairs = 8 * (FIXED + 2 * tiling.pairs) * (basis.width // tiling.pairs)
        of_components = 8 * basis.group.components + 4 * LANES
        elements = sum(each.size for each in payload.sinks)
        elements += sum(len(each.elements) for each in payload.exceptions)
        patches = (8 + 4) * elements
        parts = 16 * (12 + 2 * len(self.chunks))
        fixed = vectors + of_pairs + of_components + patches + parts
        return int(padded(self._size) + angles + of_tokens + of_blocks + fixed)

    def cut_exact(self, wanted: _Numbers) -> Iterator[Rows]:
        """Cuts blocks for the exact path, whose rows need more."""
        return self._cut(wanted, self._most // self._exact_row)

    def _cut(self, wanted: _Numbers, most: int) -> Iterator[Rows]:
        """Cuts blocks into parts of at most so many rows, but of one block at least."""
        first, count = 0, 0
        for number, tokens in enumerate(self.payload.blocks.tokens[wanted].tolist()):
            if number > first and count + tokens > most:
                yield Rows(wanted[first:number], count)
                first, count = number, 0
            count += tokens
        if first < len(wanted):
            yield Rows(wanted[first:], count)

    def tiles(self, wanted: _Numbers) -> _Numbers:
        """Tiles of the rows of these blocks that are in the range, i64 [tiles, 7].

        Blocks of a batch that follow one another share tiles. A tile is its first row, its rows,
        its first token in the range, its batch, its components, and the places of its first and
        last block among these.
        """
        blocks, most = self.payload.blocks, self.basis.tiling.rows
        tokens, batches = blocks.tokens[wanted], blocks.batch[wanted]
        rows = np.cumsum(tokens) - tokens
        first = np.maximum(blocks.token[wanted], self.tokens.first)
        end = np.minimum(blocks.token[wanted] + tokens, self.tokens.end)
        begins = np.flatnonzero(
            (np.diff(wanted, prepend=-2) != 1) | (np.diff(batches, prepend=-1) != 0)
        )
        counts = np.add.reduceat(end - first, begins) if len(begins) else begins
        per_run = -(-counts // most)
        run = np.repeat(np.arange(len(begins)), per_run)
        within = most * (np.arange(len(run)) - np.repeat(np.cumsum(per_run) - per_run, per_run))
        begin = begins[run]
        at = rows[begin] + first[begin] - blocks.token[wanted][begin] + within
        count = np.minimum(most, counts[run] - within)
        one, last = (np.searchsorted(rows, each, "right") - 1 for each in (at, at + count - 1))
        runs = np.zeros(len(at), np.int64)
        for further in range(int((last - one).max(initial=-1)) + 1):
            runs = np.maximum(runs, blocks.runs[wanted][np.minimum(one + further, last)])
        where = first[begin] - self.tokens.first + within
        return np.stack([at, count, where, batches[begin], LANES * runs, one, last], 1)


class _Chunk(NamedTuple):
    """Blocks that were launched, and what the kernels found of each: broken, beyond 32 bits."""

    rows: Rows
    found: torch.Tensor


class GroupDecoding:
    """A payload that is being decoded on the device.

    Args:
        plan: For the payload.
        held: The artefact.
        slots: slot_table() on the device.
        outputs: Tensors [batches, heads, slots, channels] of any strides, by member.
        token_slots: Where each token of the range goes, -1 for nowhere.
        entry: Whose payload it is.

    """

    def __init__(
        self,
        plan: GroupPlan,
        held: Held,
        slots: torch.Tensor,
        outputs: Mapping[int, torch.Tensor],
        token_slots: npt.NDArray[np.int64],
        entry: Entry,
    ) -> None:
        """Keeps what `launch` needs."""
        self.plan, self.slots, self.outputs, self._held = plan, slots, outputs, held
        self.entry, self.token_slots = entry, token_slots
        self.dtype, self.device = entry.dtype, slots.device
        self.chunks: list[_Chunk] = []

    @property
    def scratch(self) -> int:
        """Bytes on the device, besides what the elements take."""
        return self.plan.scratch

    def _send(self, slots: torch.Tensor) -> None:
        """Sends what the kernels need."""
        plan, payload, device = self.plan, self.plan.payload, self.device
        arrays = [
            payload.classes,
            payload.offsets,
            (plan.classes >= _TABLE_CLASSES).astype(np.int32),
            payload.factors[plan.tokens.first : plan.tokens.end],
            self._places(),
        ]
        for rows in plan.chunks:
            arrays += [self._descriptors(rows), plan.tiles(rows.blocks)]
        self.data = self._held.send([self.entry], device)
        sent = send_all(arrays, device)
        self.classes, self.offsets, self.low_runs, self.factors, self.places, *left = sent
        self.tables = list(zip(left[::2], left[1::2], strict=True))
        self.slots_sent = slots
        count = plan.tokens.end - plan.tokens.first
        self.rotations = torch.empty(max(1, 2 * count * plan.basis.angles), device=device)

    def _places(self) -> _Numbers:
        """Lists where the channels of each tile of pairs lie."""
        table = self.plan.basis.places(self.outputs, self.plan.payload.units)
        self.tile_numbers = table[:, 0].tolist()
        self.aligned = are_aligned(table)
        return table

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
        for rows, (descriptors, tiles) in zip(plan.chunks, self.tables, strict=True):
            self.chunks.append(self._launch(rows, descriptors, tiles))
        self.patches = self._send_patches()
        self._patch()

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
                block = int(chunk.rows.blocks[found[0].argmax()])
                raise PayloadError(
                    f"the payload of {self.entry.codec} has a block {block}, at byte "
                    f"{self.plan.payload.blocks.states[block] - 16}, that breaks the format",
                    tensor=self.entry.name,
                )
            beyond.append(chunk.rows.blocks[found[1] != 0])
        again = np.concatenate(beyond) if beyond else np.zeros(0, np.int64)
        for rows in self.plan.cut_exact(again):
            self._exact(rows)
        if len(again):
            self._patch()
        return len(again) > 0

    def _descriptors(self, rows: Rows) -> _Numbers:
        """Blocks as the entropy decoder takes them."""
        blocks = self.plan.payload.blocks
        sizes = [blocks.states, blocks.words, blocks.escapes, blocks.low, blocks.runs]
        tokens = blocks.tokens[rows.blocks]
        columns = [each[rows.blocks] for each in sizes]
        columns += [np.cumsum(tokens) - tokens, tokens]
        columns.append(blocks.token[rows.blocks])
        return np.stack(columns, 1)

    def _entropy(
        self, rows: Rows, descriptors: torch.Tensor, planes: list[torch.Tensor], *, whole: bool
    ) -> _Chunk:
        """Decodes the levels of blocks to planes: low, high, and whole."""
        plan = self.plan
        found = torch.zeros(len(rows.blocks), 2, dtype=torch.int32, device=self.device)
        entropy_kernel[(len(rows.blocks),)](
            self.data,
            descriptors,
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

    def _launch(self, rows: Rows, descriptors: torch.Tensor, tiles: torch.Tensor) -> _Chunk:
        """Decodes blocks whose products 32 bits hold; marks the others."""
        plan, basis, tiling = self.plan, self.plan.basis, self.plan.basis.tiling

        def zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        low = zeros(rows.tokens, plan.low_width, dtype=torch.int8)
        high = zeros(rows.tokens, max(1, plan.high_width), dtype=torch.int8)
        sums = zeros(rows.tokens, dtype=torch.int32)
        chunk = self._entropy(rows, descriptors, [low, high, sums], whole=False)
        high_ends = zeros(len(tiles), dtype=torch.int32)
        kernels.row_sums_kernel[(len(tiles),)](
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
        kernels.product_kernel[(len(tiles) * len(self.tile_numbers),)](
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
        arrays = [self._descriptors(rows), plan.tiles(rows.blocks)]
        descriptors, tiles = send_all(arrays, self.device)
        self._entropy(rows, descriptors, [self.data, self.data, levels], whole=True)
        wide = levels.to(torch.float64)
        for column, tile in enumerate(self.tile_numbers):
            vectors = basis.vectors(tile)[:, : plan.low_width]
            sums = (wide @ vectors.T).to(torch.float32)
            kernels.finish_kernel[(len(tiles),)](
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

    def _send_patches(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Sends where sinks go and what they are, then the same of exceptions, which may be sinks.

        Bits are integers with a sign, which torch computes with.
        """
        payload, tokens = self.plan.payload, self.plan.tokens
        size = SIZES[self.dtype]
        sinks: list[tuple[_Numbers, Bits]] = []
        exceptions: list[tuple[_Numbers, Bits]] = []
        for member, tensor in self.outputs.items():
            batches, heads, _, channels = tensor.shape
            base, strides = tensor.data_ptr(), [size * each for each in tensor.stride()]
            found = payload.sinks[member][:, :, tokens.first : tokens.end]
            slots = self.token_slots[: found.shape[2]]
            found, slots = found[:, :, slots >= 0], slots[slots >= 0]
            axes = np.ix_(np.arange(batches), np.arange(heads), slots, np.arange(channels))
            at = base + sum(each * stride for each, stride in zip(axes, strides, strict=True))
            sinks.append((at.reshape(-1), found.reshape(-1)))
            if not payload.exceptions:
                continue
            own = payload.exceptions[member]
            shape = (batches, heads, len(payload.offsets), channels)
            batch, head, token, channel = np.unravel_index(own.elements, shape)
            slot = np.full(len(token), -1)
            inside = (token >= tokens.first) & (token < tokens.end)
            slot[inside] = self.token_slots[token[inside] - tokens.first]
            index = (batch, head, slot, channel)
            at = base + sum(each * stride for each, stride in zip(index, strides, strict=True))
            exceptions.append((at[slot >= 0], own.bits[slot >= 0]))
        patches = []
        for parts in (sinks, exceptions):
            if any(len(at) for at, _ in parts):
                places = np.concatenate([at for at, _ in parts]).astype(np.int64)
                bits = np.concatenate([bits for _, bits in parts])
                patches += [places, bits.view(f"<i{size}")]
        sent = send_all(patches, self.device)
        return list(zip(sent[::2], sent[1::2], strict=True))

    def _patch(self) -> None:
        """Puts sinks and exceptions into the tensors."""
        for places, bits in self.patches:
            kernels.patch_kernel[(-(-len(bits) // _PATCHES),)](
                places, bits, len(bits), SIZE=SIZES[self.dtype], BLOCK=_PATCHES, num_warps=4
            )
