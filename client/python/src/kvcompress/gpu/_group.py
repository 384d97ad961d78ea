# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes the payload of a group on the device: buffers, launches, and what the kernels found."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu import _product_kernels as kernels
from kvcompress.gpu._basis import are_aligned
from kvcompress.gpu._device import has_ptx
from kvcompress.gpu._entropy_kernel import entropy_kernel
from kvcompress.gpu._group_plan import GroupPlan, Numbers, Rows
from kvcompress.gpu._payload import Bits
from kvcompress.gpu._upload import Held, send_all
from kvcompress.payload import PayloadError
from kvcompress.payload._codec import Entry
from kvcompress.payload._dtypes import SIZES

_TABLE_CLASSES = 28
_PATCHES = 1024  # elements of a program


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
        first, end = plan.tokens
        self.rotations = plan.basis.rotations(payload.position + first, end - first)

    def _places(self) -> Numbers:
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
        plan = self.plan
        self._send(slots)
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
            if self.device.type == "cuda":
                # What this stream reads is of another, and is given back next.
                torch.cuda.current_stream(self.device).synchronize()
        return len(again) > 0

    def _descriptors(self, rows: Rows) -> Numbers:
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
            PTX=has_ptx(self.device),
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
        sinks: list[tuple[Numbers, Bits]] = []
        exceptions: list[tuple[Numbers, Bits]] = []
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
