# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Encodes groups of a profile on the device, with the choices of the service's encoder.

Those are the thresholds between quanta, the finer steps of recent tokens and of sinks, and integer
sinks.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu import _encode_kernels, _project_kernels
from kvcompress.gpu._basis import Basis, are_aligned
from kvcompress.gpu._device import has_ptx, on_stream
from kvcompress.gpu._encoding_tables import (
    NARROW,
    NARROW_AMD,
    WIDE,
    EncodingBasis,
    Projection,
    Symbols,
    recent_offsets,
)
from kvcompress.gpu._payload import HEADER, step_factors
from kvcompress.gpu._place import cut_by_size
from kvcompress.gpu._sinks import find_sinks, integer_sinks, refine
from kvcompress.gpu._upload import send_all, to_host
from kvcompress.payload._ecsq_tables import TABLES

_COPIED, _COPIES = 1024, 16  # bytes that a program copies at once; programs of a block
_MOST_LOW = 11  # bits of a quantum of class 71


class _Started(NamedTuple):
    """Blocks that are being encoded.

    Attributes:
        blocks: Batch, first token and tokens of each.
        found: i32 [3], as the kernels of the projection set it.
        sizes: i32 [blocks, 4], as encode_kernel makes it.
        coded: Words, escapes, low bits and states, and how much room each block has of each.
    """

    blocks: list[tuple[int, int, int]]
    found: torch.Tensor
    sizes: torch.Tensor
    coded: list[torch.Tensor]
    room: tuple[int, int, int]


class GroupEncoding:
    """A group that is encoded.

    Args:
        basis: Of the group.
        own: What encoding needs besides it.
        sources: Its tensors [batches, heads, tokens, channels] of one type, by member.
        names: Theirs, by member.
        dtype: Theirs, as files name it.
        position: Of token 0 in the model's input.
        most: Bytes of the scratch memory that goes with tokens; a block takes what it needs.
        side: The stream in which quanta are coded, beside those of the next blocks; None on the
            CPU.
    """

    def __init__(
        self,
        basis: Basis,
        own: EncodingBasis,
        sources: Mapping[int, torch.Tensor],
        names: Mapping[int, str],
        dtype: str,
        position: int,
        most: int,
        side: "torch.cuda.Stream | None",
    ) -> None:
        """Plans the blocks."""
        self.basis, self.own, self.dtype = basis, own, dtype
        self.sources, self.names = sources, names
        self.position, self.most, self._side = position, most, side
        first = next(iter(sources.values()))
        self.batches, self.tokens, self.device = first.shape[0], first.shape[2], first.device
        count = self.tokens
        members = basis.group.members
        sinks = find_sinks([each for i, each in sources.items() if members[i].role == "v"])
        self.sinks = integer_sinks(sinks, count) if position == 0 else 0
        self.offsets = recent_offsets(count) if position == 0 else np.zeros(count, np.int8)
        refine(self.offsets, sinks)
        self._collected: list[torch.Tensor] = []

    def start(self, group: int, preset: int, step: float, block_tokens: int) -> Iterator[_Started]:
        """Launches the kernels, a part of the blocks at a time.

        A part is to be collected after the next one was started at the latest, since the scratch
        memory holds two.

        Args:
            group: Its number in the profile.
            preset: Whose classes and step are used.
            step: The preset's.
            block_tokens: Of a block, 16 to 256.
        """
        runs = self._runs() if self.offsets.any() else b""
        self._front = (
            HEADER.pack(
                *(1, 0, group, preset, 0, self.sinks, 0, self.position, step, block_tokens, 0),
                *(len(runs), 0),
            )
            + runs
        )
        sinks = [
            self.sources[member][:, :, : self.sinks].to(torch.float32).reshape(-1)
            for member in sorted(self.sources)
        ]
        self._sinks_sent = to_host(torch.cat(sinks))
        self._send(preset, np.float32(step))
        projection = NARROW_AMD if torch.version.hip else NARROW
        for part in self._cut(list(self._blocks(block_tokens))):
            yield self._start(part, projection)

    def collect(self, started: _Started) -> None:
        """Waits for a part, and puts its blocks together.

        Raises:
            InvalidArgumentError: An element is not finite, or too large for the preset's step.
        """
        with on_stream(self.device, self._side):
            bad, _, beyond = started.found.tolist()
        if bad:
            self._refuse_infinite()
        if beyond:
            started = self._start(started.blocks, WIDE)
        with on_stream(self.device, self._side):
            if started.found[1].item():
                self._refuse_large()
            self._collected.append(self._assemble(started))

    def _refuse_infinite(self) -> NoReturn:
        """Names the element that is not finite."""
        for member, tensor in self.sources.items():
            bad = (~tensor.isfinite()).reshape(-1).nonzero()
            if len(bad):
                raise InvalidArgumentError(
                    f"tensor {self.names[member]!r} has NaN or infinity at element {int(bad[0])}, "
                    "which klt cannot hold: use lossless, or set positions that nobody reads to 0",
                    reason="NOT_FINITE",
                    tensor=self.names[member],
                    element=int(bad[0]),
                )
        raise AssertionError("kernels found an element that is not finite, and torch none")

    def _refuse_large(self) -> NoReturn:
        """Names the last tensor of the group: components are of all of them."""
        name = self.names[max(self.names)]
        raise InvalidArgumentError(
            f"a token of the group of tensor {name!r} is more than 2^20 steps from the means of "
            "the profile: encode it on the host",
            reason="PROFILE_UNSUITABLE",
            tensor=name,
        )

    def pieces(self) -> list[bytes | torch.Tensor]:
        """The payload, after all parts were collected: its front, and blocks on the device.

        Raises:
            InvalidArgumentError: An element of a sink is not finite.
        """
        if self._side is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_stream(self._side)
            stream.synchronize()
            for blocks in self._collected:
                blocks.record_stream(stream)
        return [self._front + self._sinks(), *self._collected]

    def _runs(self) -> bytes:
        """The offsets in their runs."""
        ends = np.append(np.flatnonzero(np.diff(self.offsets)) + 1, self.tokens)
        parts, first = [], 0
        for end in ends.tolist():
            offset = int(self.offsets[first])
            for begin in range(first, end, 65535):
                parts.append(struct.pack("<Hb", min(65535, end - begin), offset))
            first = end
        return b"".join(parts)

    def _sinks(self) -> bytes:
        """Sinks as integers, tensor by tensor."""
        parts, position, values = [], 0, self._sinks_sent.numpy()
        if not np.isfinite(values).all():
            self._refuse_infinite()
        for member in sorted(self.sources):
            batches, heads, _, channels = self.sources[member].shape
            size = batches * heads * self.sinks * channels
            rows = values[position : position + size].reshape(-1, channels)
            position += size
            largest = (np.abs(rows).max(1, initial=0) / np.float32(127)).view(np.uint32)
            scales = ((largest + 0xFFFF) >> 16).astype(np.uint16)
            wide = (scales.astype(np.uint32) << 16).view(np.float32)[:, None]
            ratio = np.divide(rows, wide, out=np.zeros_like(rows), where=wide > 0).astype(float)
            codes = np.copysign(np.floor(np.abs(ratio) + 0.5), ratio).clip(-127, 127).astype("i1")
            scales_bytes = scales.astype("<u2").view("u1").reshape(-1, 2)
            parts.append(np.hstack([scales_bytes, codes.view("u1")]).tobytes())
        return b"".join(parts)

    def _blocks(self, block_tokens: int) -> Iterator[tuple[int, int, int]]:
        """Batch, first token and tokens of each block."""
        for batch in range(self.batches):
            for token in range(self.sinks, self.tokens, block_tokens):
                yield batch, token, min(block_tokens, self.tokens - token)

    def _cut(self, blocks: list[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
        """Cuts blocks into parts of which three quarters of the scratch memory hold two."""
        # Quanta, words and escapes, and low bits.
        row = self.basis.group.components * (4 + 2 + 6 + (2 if self._low else 0))
        most = self.most * 3 // 8 // row
        for part, _ in cut_by_size([tokens for _, _, tokens in blocks], most):
            yield blocks[part]

    def _send(self, preset: int, step: np.float32) -> None:
        """Sends what the kernels need for all blocks."""
        basis, symbols = self.basis, Symbols.get()
        factor = step_factors(self.offsets)
        classes = basis.group.classes[preset].astype(np.int32)
        top = int(classes.max(initial=0)) + int(self.offsets.max(initial=0))
        self._low = top >= TABLES
        # A power of two, so that it changes no quantum.
        self._scale = float(np.exp2(-np.floor(np.log2(step))))
        names = ("places", "offsets", "inverses", "classes", "symbols", "largest", "thresholds")
        places = basis.places(self.sources, np.ones(len(self.sources), np.float32))
        self._aligned = are_aligned(places)
        arrays: list[npt.NDArray[Any]] = [
            places,
            self.offsets,
            np.float32(1) / (step * np.float32(self._scale) * factor),
            classes,
            *symbols,
        ]
        self._tables = dict(zip(names, send_all(arrays, self.device), strict=True))
        self._rotations = basis.rotations(self.position, self.tokens)

    def _start(self, part: list[tuple[int, int, int]], projection: Projection) -> _Started:
        """Launches the kernels for some blocks."""
        table = np.array(part)
        counts = table[:, 2]
        firsts = np.cumsum(counts) - counts
        number = np.repeat(np.arange(len(part)), counts)
        token = table[number, 1] + np.arange(len(number)) - firsts[number]
        arrays: list[npt.NDArray[Any]] = [
            np.stack([table[number, 0], token], 1).astype(np.int32),
            number.astype(np.int32),
            np.stack([firsts, counts, table[:, 1]], 1).astype(np.int64),
        ]
        rows, block_of, blocks = send_all(arrays, self.device)
        found = torch.zeros(3, dtype=torch.int32, device=self.device)
        quanta, lasts = self._quantize(rows, block_of, len(part), found, projection)
        return self._code(part, quanta, lasts, blocks, found)

    def _quantize(
        self,
        rows: torch.Tensor,
        block_of: torch.Tensor,
        blocks: int,
        found: torch.Tensor,
        projection: Projection,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Quanta of rows, and behind which component those of each block are 0."""
        basis, tiling, count = self.basis, self.basis.tiling, len(rows)
        components, device = basis.group.components, self.device
        quanta = torch.empty(count, components, dtype=torch.int32, device=device)
        lasts = torch.zeros(blocks, dtype=torch.int32, device=device)
        # A quarter of the scratch memory has elements.
        size = 2 * basis.width * projection.size
        most = max(1, self.most // 4 // (size * tiling.rows)) * tiling.rows
        dtype = torch.float16 if projection.narrow else torch.float32
        left = torch.empty(min(count, most), 2 * basis.width, dtype=dtype, device=device)
        for first in range(0, count, most):
            part = slice(first, first + most)
            self._project(rows[part], block_of[part], left, quanta[part], lasts, found, projection)
        return quanta, lasts

    def _project(
        self,
        rows: torch.Tensor,
        block_of: torch.Tensor,
        left: torch.Tensor,
        quanta: torch.Tensor,
        lasts: torch.Tensor,
        found: torch.Tensor,
        projection: Projection,
    ) -> None:
        """Makes quanta of rows, of which `left` holds the elements meanwhile."""
        basis, tiling, count, tables = self.basis, self.basis.tiling, len(rows), self._tables
        tiles = -(-count // tiling.rows)
        _project_kernels.prepare_kernel[(tiles, len(tables["places"]))](
            *(rows, left, self.own.factors, basis.columns, self._rotations),
            *(tables["places"], found, self._scale, count, basis.width, basis.angles),
            BM=tiling.rows,
            NP=tiling.pairs,
            DTYPE=self.dtype,
            NARROW=projection.narrow,
            ALIGNED=self._aligned,
            num_warps=8,
        )
        components = basis.group.components
        columns = min(tiling.components, projection.columns)
        step = min(tiling.components, projection.step)
        across = -(-components // columns)
        _project_kernels.project_kernel[(tiles * across,)](
            *(left, self.own.encode, rows, tables["offsets"], tables["inverses"]),
            *(tables["classes"], tables["thresholds"], block_of, quanta, lasts, found),
            *(count, components, 2 * basis.width, across),
            BM=tiling.rows,
            BN=columns,
            BK=step,
            NARROW=projection.narrow,
            num_warps=projection.warps,
            num_stages=2 if torch.version.hip else 3,
        )

    def _code(
        self,
        part: list[tuple[int, int, int]],
        quanta: torch.Tensor,
        lasts: torch.Tensor,
        blocks: torch.Tensor,
        found: torch.Tensor,
    ) -> _Started:
        """Codes the quanta of blocks, beside what the current stream does next."""
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self.device))
            for tensor in (quanta, lasts, blocks, found, *self._tables.values()):
                tensor.record_stream(self._side)
        with on_stream(self.device, self._side):
            return self._launch_coding(part, quanta, lasts, blocks, found)

    def _launch_coding(
        self,
        part: list[tuple[int, int, int]],
        quanta: torch.Tensor,
        lasts: torch.Tensor,
        blocks: torch.Tensor,
        found: torch.Tensor,
    ) -> _Started:
        """Codes the quanta of blocks in the current stream."""
        device, count, components = self.device, len(part), quanta.shape[1]
        symbols = max(each[2] for each in part) * components

        def empty(size: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        room = (symbols, 6 * symbols, (symbols * _MOST_LOW if self._low else 0) // 32 + 2)
        words, escapes = empty(count * room[0], torch.int16), empty(count * room[1], torch.uint8)
        lows = torch.zeros(count * room[2], dtype=torch.int32, device=device)
        states, sizes = empty(32 * count, torch.int32), empty(4 * count, torch.int32)
        tables = self._tables
        _encode_kernels.encode_kernel[(count,)](
            *(quanta, lasts, blocks, tables["classes"], tables["offsets"], tables["symbols"]),
            *(tables["largest"], words, escapes, lows, states, sizes, components, *room),
            LOW=self._low,
            PTX=has_ptx(device),
            num_warps=1,
        )
        return _Started(part, found, sizes.reshape(-1, 4), [words, escapes, lows, states], room)

    def _assemble(self, started: _Started) -> torch.Tensor:
        """Puts the parts of blocks together."""
        parts = started.sizes.to(torch.int64)
        ends = torch.cumsum(144 + 2 * parts[:, 0] + parts[:, 1] + parts[:, 2], 0)
        begins = torch.cat([ends.new_zeros(1), ends[:-1]])
        out = torch.empty(int(ends[-1]), dtype=torch.uint8, device=self.device)
        coded = [each.view(torch.uint8) for each in started.coded]
        room, copies = started.room, _COPIES if self.device.type == "cuda" else 1
        _encode_kernels.assemble_kernel[(len(started.blocks), copies)](
            *(*coded, started.sizes, begins, out, 2 * room[0], room[1], 4 * room[2]),
            BLOCK=_COPIED,
            num_warps=4,
        )
        return out
