# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Encodes groups of a profile on the device, with the choices of the service's encoder.

Those are the thresholds between quanta, the finer steps of recent tokens, and an integer sink.
"""

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu import _encode_kernels, _project_kernels
from kvcompress.gpu._basis import Basis
from kvcompress.gpu._product_kernels import rotation_kernel
from kvcompress.gpu._upload import send
from kvcompress.payload._ecsq_tables import ESCAPE, TABLES, Tables

_HEADER = struct.Struct("<BBHBbBBQfHHII")
_QUARTERS = np.array([0x3F800000, 0x3F5744FD, 0x3F3504F3, 0x3F1837F0], np.uint32).view(np.float32)
_ROTATIONS = 256  # angles of a program
_COPIED = 1024  # bytes that a program copies at once
_COPIES = 16  # programs that put a block together
_MOST_LOW = 11  # bits of a quantum of class 71
# Squared error, in squared steps, that a bit is worth.
_ERROR_PER_BIT = 0.025
_ESCAPE_BITS = 16
# How steps shrink with the age of a token: exponent, tokens added to the age, octaves.
_WEIGHTING, _NEWEST, _LEAST_OCTAVES, _MOST_OCTAVES = 0.3, 8, -2.0, 0.75
COLUMNS = 64
"""Components of a tile of the projection: more take more shared memory than a block has."""
STEP = 32
"""Channels of a step of the projection."""


class Symbols(NamedTuple):
    """The tables of the entropy encoder.

    Attributes:
        intervals: i32 [28, 64], f << 16 | first of the symbols from -32 on, 63 the escape.
        largest: i32 [28], the largest symbol.
        thresholds: f32 [29, 64], below which the lesser of n and n - 1 is taken.
    """

    intervals: npt.NDArray[np.int32]
    largest: npt.NDArray[np.int32]
    thresholds: npt.NDArray[np.float32]

    @staticmethod
    @cache
    def get() -> "Symbols":
        """Makes them once."""
        tables = Tables.get()
        intervals, largest = np.zeros((TABLES, 64), np.int32), np.zeros(TABLES, np.int32)
        for table, slots in enumerate(tables.symbol[:TABLES]):
            for symbol in np.unique(slots).tolist():
                at = np.flatnonzero(slots == symbol)
                place = 63 if symbol == ESCAPE else symbol + 32
                intervals[table, place] = len(at) << 16 | int(at[0])
            largest[table] = slots[slots != ESCAPE].max()
        # In 256ths of a bit, as the service counts.
        bits = np.zeros((TABLES + 1, 64))
        for table in range(TABLES):
            for symbol in range(64):
                coded = symbol <= largest[table]
                frequency = intervals[table, symbol + 32 if coded else 63] >> 16
                cost = round(-256 * np.log2(frequency / 2048))
                bits[table, symbol] = (cost + (0 if coded else 256 * _ESCAPE_BITS)) / 256
        saved = np.diff(bits, axis=1, prepend=0)
        thresholds = np.arange(64) - 0.5 + _ERROR_PER_BIT * saved / 2
        thresholds[:, 0] = 0
        return Symbols(intervals, largest, thresholds.astype(np.float32))


def recent_offsets(tokens: int) -> npt.NDArray[np.int8]:
    """Offsets of tokens: later ones get more attention, and finer steps."""
    attention = -np.log2(np.arange(tokens - 1, -1, -1) + float(_NEWEST))
    octaves = -_WEIGHTING * (attention - attention.mean())
    quarters = 4 * np.clip(octaves, _LEAST_OCTAVES, _MOST_OCTAVES)
    away = np.copysign(np.floor(np.abs(quarters) + 0.5), quarters)
    offsets: npt.NDArray[np.int8] = (-away).astype(np.int8)
    return offsets


class EncodingBasis:
    """What encoders take of a group of a profile besides its Basis.

    Attributes:
        encode: f16 [components, 2 width], the matrix in the order of tiles of pairs.
        factors: f32 [4, width], of first and second channels, then their means.
    """

    def __init__(self, basis: Basis, device: torch.device) -> None:
        """Sends it."""
        group, order = basis.group, basis.order
        numbers = np.stack([group.factors[order], group.means[order]])
        self.factors = send(np.where(order < 0, np.float32(0), numbers).reshape(4, -1), device)
        columns = order.reshape(2, -1, basis.tiling.pairs).transpose(1, 0, 2).ravel()
        whole = np.where(columns < 0, 0, group.encode[:, columns])
        self.encode = send((whole.astype(np.float32) / 32768).astype(np.float16), device)


class GroupEncoding:
    """A group that is encoded.

    Args:
        basis: Of the group.
        own: What encoding needs besides it.
        sources: Its tensors [batches, heads, tokens, channels] of one type, by member.
        dtype: Theirs, as files name it.
        position: Of token 0 in the model's input.
        most: Bytes of the scratch memory that goes with tokens; a block takes what it needs.
    """

    def __init__(
        self,
        basis: Basis,
        own: EncodingBasis,
        sources: Mapping[int, torch.Tensor],
        dtype: str,
        position: int,
        most: int,
    ) -> None:
        """Plans the blocks."""
        self.basis, self.own, self.sources, self.dtype = basis, own, sources, dtype
        self.position, self.most = position, most
        first = next(iter(sources.values()))
        self.batches, self.tokens, self.device = first.shape[0], first.shape[2], first.device
        self.sinks = min(1, self.tokens) if position == 0 else 0
        self.offsets = np.zeros(self.tokens, np.int8)
        if position == 0:
            self.offsets = recent_offsets(self.tokens)

    def payload(self, group: int, preset: int, step: float, block_tokens: int) -> bytes:
        """Encodes and returns the payload.

        Args:
            group: Its number in the profile.
            preset: Whose classes and step are used.
            step: The preset's.
            block_tokens: Of a block, 16 to 256.

        Raises:
            InvalidArgumentError: An element is not finite, or too large for the preset's step.
        """
        runs = b""
        if self.offsets.any():
            runs = self._runs()
        header = _HEADER.pack(
            *(1, 0, group, preset, 0, self.sinks, 0, self.position, step, block_tokens, 0),
            *(len(runs), 0),
        )
        blocks = b"".join(self._encode(preset, np.float32(step), block_tokens))
        return header + runs + self._sinks() + blocks

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
        parts = []
        for member in sorted(self.sources):
            values = self.sources[member][:, :, : self.sinks].to(torch.float32).cpu().numpy()
            rows = values.reshape(-1, values.shape[-1])
            if not np.isfinite(rows).all():
                raise _NotFiniteError
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

    def _encode(self, preset: int, step: np.float32, block_tokens: int) -> Iterator[bytes]:
        """Encodes blocks, as many at once as the scratch memory holds."""
        basis, symbols = self.basis, Symbols.get()
        places = basis.places(self.sources, np.ones(len(self.sources), np.float32))
        factor = _QUARTERS[self.offsets % 4] * np.exp2(-(self.offsets // 4).astype(np.float32))
        tables = {
            "places": send(places, self.device),
            "offsets": send(self.offsets, self.device),
            "inverses": send(np.float32(1) / (step * factor), self.device),
            "classes": send(basis.group.classes[preset].astype(np.int32), self.device),
            "symbols": send(symbols.intervals, self.device),
            "largest": send(symbols.largest, self.device),
            "thresholds": send(symbols.thresholds, self.device),
            "rotations": self._rotate(),
        }
        top = int(basis.group.classes[preset].max(initial=0)) + int(self.offsets.max(initial=0))
        components = basis.group.components
        # Elements, quanta, words, escapes, and low bits of a row.
        row = 8 * basis.width + components * (4 + 2 + 6 + 2)
        part: list[tuple[int, int, int]] = []
        for block in self._blocks(block_tokens):
            if part and (sum(each[2] for each in part) + block[2]) * row > self.most:
                yield self._encode_part(part, tables, low=top >= TABLES)
                part = []
            part.append(block)
        if part:
            yield self._encode_part(part, tables, low=top >= TABLES)

    def _rotate(self) -> torch.Tensor:
        """Cosines and sines of all tokens."""
        count = self.tokens * self.basis.angles
        rotations = torch.empty(max(1, 2 * count), device=self.device)
        if count:
            rotation_kernel[(-(-count // _ROTATIONS),)](
                self.basis.increments,
                rotations,
                self.position,
                self.tokens,
                self.basis.angles,
                BLOCK=_ROTATIONS,
                enable_fp_fusion=False,
            )
        return rotations

    def _encode_part(
        self, part: list[tuple[int, int, int]], tables: dict[str, torch.Tensor], *, low: bool
    ) -> bytes:
        """Encodes some blocks."""
        counts = np.array([each[2] for each in part])
        firsts = np.cumsum(counts) - counts
        number = np.repeat(np.arange(len(part)), counts)
        batch, token = (np.array([each[i] for each in part])[number] for i in (0, 1))
        token = token + np.arange(len(number)) - firsts[number]
        rows = send(np.stack([batch, token], 1).astype(np.int32), self.device)
        blocks = np.stack([firsts, counts, [each[1] for each in part]], 1).astype(np.int64)
        quanta, lasts = self._quantize(rows, send(number.astype(np.int32), self.device), tables)
        return self._code(quanta, lasts, send(blocks, self.device), int(counts.max()), tables, low)

    def _quantize(
        self, rows: torch.Tensor, block_of: torch.Tensor, tables: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Quanta of rows, and behind which component those of each block are 0."""
        basis, tiling, count = self.basis, self.basis.tiling, len(rows)
        components, inner = basis.group.components, 2 * basis.width
        left = torch.empty(count, inner, device=self.device)
        quanta = torch.empty(count, components, dtype=torch.int32, device=self.device)
        lasts = torch.zeros(int(block_of[-1]) + 1, dtype=torch.int32, device=self.device)
        found = torch.zeros(2, dtype=torch.int32, device=self.device)
        tiles = -(-count // tiling.rows)
        _project_kernels.prepare_kernel[(tiles, len(tables["places"]))](
            *(rows, left, self.own.factors, basis.columns, tables["rotations"]),
            *(tables["places"], found, count, basis.width, basis.angles),
            BM=tiling.rows,
            NP=tiling.pairs,
            DTYPE=self.dtype,
            num_warps=8,
        )
        columns = min(tiling.components, COLUMNS)
        _project_kernels.project_kernel[(tiles, -(-components // columns))](
            *(left, self.own.encode, rows, tables["offsets"], tables["inverses"]),
            *(tables["classes"], tables["thresholds"], block_of, quanta, lasts, found),
            *(count, components, inner),
            BM=tiling.rows,
            BN=columns,
            BK=STEP,
            num_warps=4,
            num_stages=2 if torch.version.hip else 3,
        )
        bad, far = found.tolist()
        if bad:
            raise _NotFiniteError
        if far:
            raise _TooLargeError
        return quanta, lasts

    def _code(
        self,
        quanta: torch.Tensor,
        lasts: torch.Tensor,
        blocks: torch.Tensor,
        most: int,
        tables: dict[str, torch.Tensor],
        low: bool,
    ) -> bytes:
        """Codes the quanta of blocks of at most so many tokens."""
        device, count, components = self.device, len(blocks), quanta.shape[1]
        symbols = most * components

        def empty(size: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        room = (symbols, 6 * symbols, (symbols * _MOST_LOW if low else 0) // 32 + 2)
        words, escapes = empty(count * room[0], torch.int16), empty(count * room[1], torch.uint8)
        lows = torch.zeros(count * room[2], dtype=torch.int32, device=device)
        states, sizes = empty(32 * count, torch.int32), empty(4 * count, torch.int32)
        _encode_kernels.encode_kernel[(count,)](
            *(quanta, lasts, blocks, tables["classes"], tables["offsets"], tables["symbols"]),
            *(tables["largest"], words, escapes, lows, states, sizes, components, *room),
            LOW=low,
            PTX=device.type == "cuda" and torch.version.hip is None,
            num_warps=1,
        )
        parts = sizes.reshape(-1, 4).to(torch.int64)
        ends = torch.cumsum(144 + 2 * parts[:, 0] + parts[:, 1] + parts[:, 2], 0)
        begins = torch.cat([ends.new_zeros(1), ends[:-1]])
        out = empty(int(ends[-1]), torch.uint8)
        parts_of = [each.view(torch.uint8) for each in (words, escapes, lows, states)]
        _encode_kernels.assemble_kernel[(count, _COPIES if device.type == "cuda" else 1)](
            *(*parts_of, sizes, begins, out, 2 * room[0], room[1], 4 * room[2]),
            BLOCK=_COPIED,
            num_warps=4,
        )
        return bytes(out.cpu().numpy())


class _NotFiniteError(Exception):
    """An element is NaN or infinite."""


class _TooLargeError(Exception):
    """A quantum is beyond what the format holds."""


def encode_group(
    encoding: GroupEncoding,
    names: Mapping[int, str],
    **options: Any,  # noqa: ANN401
) -> bytes:
    """Encodes a group, and names the tensor that cannot be.

    Args:
        encoding: Of the group.
        names: Of its tensors, by member.
        options: As `GroupEncoding.payload` takes them.

    Raises:
        InvalidArgumentError: An element is not finite, or too large for the preset's step.
    """
    try:
        return encoding.payload(**options)
    except _NotFiniteError:
        for member, tensor in encoding.sources.items():
            bad = (~tensor.isfinite()).reshape(-1).nonzero()
            if len(bad):
                raise InvalidArgumentError(
                    f"tensor {names[member]!r} has NaN or infinity at element {int(bad[0])}, which "
                    "klt cannot hold: use lossless, or set positions that nobody reads to 0",
                    reason="NOT_FINITE",
                    tensor=names[member],
                    element=int(bad[0]),
                ) from None
        raise
    except _TooLargeError:
        raise InvalidArgumentError(
            f"a token of the group of tensor {names[max(names)]!r} is more than 2^20 steps from "
            "the means of the profile: encode it on the host",
            reason="PROFILE_UNSUITABLE",
            tensor=names[max(names)],
        ) from None
