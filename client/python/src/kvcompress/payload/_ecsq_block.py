# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks of `ecsq`, section 5 of FORMAT.md."""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._codec import Entry, PayloadError
from ._dtypes import SIZES, bits_dtype, finite, round_to_bits
from ._ecsq_tables import ESCAPE, SLOTS, TABLES, Tables

BLOCK_HEADER = struct.Struct("<IIIIHBBBBBB")
_FIRST_INCREMENT = 0x28BE60DB9391054A  # of pair 0

_LANES = 32
_LOWEST = 1 << 15

Floats = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int64]


class Rotation(NamedTuple):
    """Which channels of a head are rotated, and how."""

    interleaved: bool
    first: int
    pairs: int
    shift: int
    increments: list[int]

    def apply(self, values: Floats, tokens: _Ints) -> None:
        """Rotates [heads, tokens, channels] in place."""
        cosine, sine = rotation_angles(self.increments, tokens)
        part = values[..., self.first : self.first + 2 * self.pairs]
        part *= np.float32(2.0**-self.shift)
        one = slice(0, None, 2) if self.interleaved else slice(0, self.pairs)
        other = slice(1, None, 2) if self.interleaved else slice(self.pairs, None)
        a, b = part[..., one].copy(), part[..., other].copy()
        part[..., one] = a * cosine - b * sine
        part[..., other] = b * cosine + a * sine


def read_rotation(
    payload: bytes, position: int, channels: int, entry: Entry
) -> tuple[Rotation | None, int]:
    """Reads what flags 2, 4 and 16 of a tensor's header say, and where its blocks begin."""
    flags, runs = payload[1], payload[7]
    require(flags < 32 and (flags & 2 == 2 or flags & 20 == 0), entry, "flags break a rule")
    require(runs == 0 or flags & 16 != 0, entry, "there are runs without a rotated part")
    if not flags & 2:
        return None, position
    size = 8 + (8 + 6 * runs if flags & 16 else 0)
    require(len(payload) >= position + size, entry, "the payload is incomplete")
    (ratio,) = struct.unpack_from("<Q", payload, position)
    first, pairs, shift, multipliers = 0, channels // 2, 0, []
    if flags & 16:
        first, pairs, shift, zeros = struct.unpack_from("<HHB3s", payload, position + 8)
        good = pairs > 0 and first + 2 * pairs <= channels and shift <= 8 and not any(zeros)
        for run in range(runs):
            length, multiplier = struct.unpack_from("<HI", payload, position + 16 + 6 * run)
            multipliers += [multiplier] * length
            good = good and length > 0
        require(good and len(multipliers) <= pairs, entry, "the rotated part breaks a rule")
    else:
        require(channels % 2 == 0, entry, "a rotation of an odd number of channels")
    increments = increments_of(ratio, pairs, multipliers)
    return Rotation(bool(flags & 4), first, pairs, shift, increments), position + size


def increments_of(ratio: int, pairs: int, multipliers: Sequence[int]) -> list[int]:
    """How far pairs turn in a token, in turns of 2^64; the multipliers are of the first."""
    increments = [_FIRST_INCREMENT]
    for _ in range(pairs - 1):
        increments.append(increments[-1] * ratio >> 64)
    for pair, multiplier in enumerate(multipliers):
        increments[pair] = increments[pair] * multiplier >> 31
    return increments


class Fields(NamedTuple):
    """The header of a coded payload."""

    flags: int
    sinks: int
    sink_shift: int
    recent: int
    recent_shift: int
    step: np.float32
    rotation: Rotation | None

    def shift(self, token: int, tokens: int) -> int:
        """How often the step is halved for a token of so many."""
        if token < self.sinks:
            return self.sink_shift
        return self.recent_shift if token + self.recent >= tokens else 0


class Block(NamedTuple):
    """A run of elements: heads by tokens by channels."""

    heads: int
    first_token: int
    tokens: int
    channels: int


def require(condition: bool, entry: Entry, message: str) -> None:
    """Raises PayloadError unless the condition holds."""
    if not condition:
        raise PayloadError(message, tensor=entry.name)


def rounded(values: Floats, dtype: str) -> bytes:
    """Rounds to the source's type: nearest even, and finite."""
    return round_to_bits(values, dtype).tobytes()


def read_scales(data: bytes, entry: Entry) -> Floats:
    """Reads bfloat16 scales."""
    bits = np.frombuffer(data, "<u2")
    require(bool((bits < 0x7F80).all()), entry, "a scale is negative or not finite")
    return (bits.astype(np.uint32) << 16).view(np.float32)


def read_codes(data: bytes, entry: Entry) -> Floats:
    """Reads 8-bit codes."""
    codes = np.frombuffer(data, np.int8)
    require(not (codes == -128).any(), entry, "a code is out of range")
    return codes.astype(np.float32)


class BlockReader:
    """Decodes one block."""

    def __init__(
        self, fields: Fields, block: Block, tokens: int, data: bytes, entry: Entry
    ) -> None:
        """Cuts the block into its parts."""
        self.fields, self.block, self.tokens, self.entry = fields, block, tokens, entry
        self.channels = block.heads * block.channels
        self.lanes = min(_LANES, self.channels)
        left = max(0, fields.sinks - block.first_token) if fields.flags & 8 else 0
        self.sinks = min(left, block.tokens)
        self._cut(data, self._read_header(data))
        self.word = self.escape = self.low_bit = 0
        self.coder = Tables.get()

    def _read_header(self, data: bytes) -> int:
        """Reads the header; returns the bytes before the states."""
        self._require(data[23] == 0)
        return BLOCK_HEADER.size

    def _cut(self, data: bytes, begin: int) -> None:
        """Reads what the headers of all blocks share, and cuts off what follows `begin`."""
        block = self.block
        size, words, escapes, exceptions, *side = BLOCK_HEADER.unpack_from(data)
        self.norm_middle, self.norm_table, self.class_middle = side[:3]
        self.class_table, self.mean_table, self.mean_shift = side[3:6]
        self._require(
            size <= 4 * block.heads * block.tokens * block.channels + 1024
            and self.norm_middle < 0x7F8
            and max(self.norm_table, self.class_table, self.mean_table) < TABLES
            and self.class_middle < 72
            and self.mean_shift <= 12
        )
        sizes = [4 * self.lanes, 2 * words, escapes, 2 * block.heads * self.sinks]
        sizes += [self.channels * self.sinks, exceptions]
        ends = np.cumsum([begin, *sizes]).tolist()
        self._require(ends[-1] <= len(data))
        cut = [data[begin:end] for begin, end in pairwise(ends)]
        self.states = np.frombuffer(cut[0], "<u4").astype(np.int64)
        self._require(bool(((self.states >= _LOWEST) & (self.states < 2**31)).all()))
        self.words = np.frombuffer(cut[1], "<u2").astype(np.int64)
        self.escapes = cut[2]
        self.scales, self.codes, self.exceptions = cut[3:]
        self.low = np.unpackbits(np.frombuffer(data[ends[-1] :], np.uint8), bitorder="little")

    def _require(self, condition: bool) -> None:
        require(condition, self.entry, "a block breaks the format")

    def read(self) -> bytes:
        """Returns the bytes of the block's elements."""
        classes, means, norms = self._side()
        offsets = [
            4 * self.fields.shift(self.block.first_token + t, self.tokens)
            for t in range(self.block.tokens)
        ]
        quanta = self._quanta(classes, offsets)
        self._finish()
        with np.errstate(over="ignore", under="ignore"):
            shifts = np.array(offsets)[None, :, None] // 4
            units = self.fields.step * np.exp2(-(shifts + 3)).astype(np.float32)
            shaped = means.reshape(self.block.heads, 1, self.block.channels)
            values: Floats = (8 * quanta + (shaped << shifts)).astype(np.float32) * units
            return self._elements(values, norms)

    def _side(self) -> tuple[_Ints, _Ints, _Ints | None]:
        """Reads classes, means and norms."""
        block = self.block
        classes = self._numbers(self.channels, self.class_table) + self.class_middle
        self._require(bool(((classes >= 0) & (classes < 72)).all()))
        means = self._numbers(self.channels, self.mean_table)
        norms = None
        if self.fields.flags & 1:
            norms = self._numbers(block.heads * block.tokens, self.norm_table) + self.norm_middle
            self._require(bool(((norms >= 0) & (norms < 0x7F8)).all()))
        self._require(bool((abs(means) <= 2**18).all()))
        means = (means << self.mean_shift) + self._low(np.full(self.channels, self.mean_shift))
        self._require(bool((abs(means) <= 2**18).all()))
        return classes, means, norms

    def _finish(self) -> None:
        """Requires that everything was read."""
        self._require(
            self.word == len(self.words)
            and bool((self.states == _LOWEST).all())
            and self.escape == len(self.escapes)
            and len(self.low) == -(-self.low_bit // 8) * 8
            and not self.low[self.low_bit :].any()
        )

    def _elements(self, values: Floats, norms: _Ints | None) -> bytes:
        """Returns the elements of values without norms and rotation, [heads, tokens, channels]."""
        block, fields = self.block, self.fields
        tokens = np.arange(block.first_token, block.first_token + block.tokens)
        if norms is not None:
            scale = (norms.astype(np.uint32) << 20).view(np.float32)
            values *= scale.reshape(block.heads, block.tokens, 1)
        if fields.rotation is not None:
            fields.rotation.apply(values, tokens)
        if self.sinks:
            scales = read_scales(self.scales, self.entry).reshape(block.heads, self.sinks, 1)
            codes = read_codes(self.codes, self.entry)
            values[:, : self.sinks] = codes.reshape(block.heads, self.sinks, -1) * scales
        return self._patched(bytearray(rounded(values.ravel(), self.entry.dtype)))

    def _row(self, tables: _Ints) -> _Ints:
        """Reads a symbol in each of the first lanes."""
        states = self.states[: len(tables)]
        slots = states & (SLOTS - 1)
        symbols: _Ints = self.coder.symbol[tables, slots]
        states = self.coder.frequency[tables, slots] * (states >> 11)
        states += self.coder.offset[tables, slots]
        short = np.flatnonzero(states < _LOWEST)
        if len(short):
            words = self.words[self.word : self.word + len(short)]
            self._require(len(words) == len(short))
            self.word += len(short)
            states[short] = states[short] << 16 | words
        self.states[: len(tables)] = states
        return symbols

    def _resolve(self, symbols: _Ints) -> _Ints:
        """Puts the escapes, in order, where symbols are one."""
        places = np.flatnonzero(symbols == ESCAPE)
        for place in places:
            self._require(self.escape + 2 <= len(self.escapes))
            (value,) = struct.unpack_from("<h", self.escapes, self.escape)
            self.escape += 2
            if value == -32768:
                self._require(self.escape + 4 <= len(self.escapes))
                (value,) = struct.unpack_from("<i", self.escapes, self.escape)
                self.escape += 4
                self._require(abs(value) <= 2**20 and not -32767 <= value <= 32767)
            symbols[place] = value
        return symbols

    def _numbers(self, count: int, table: int) -> _Ints:
        """Reads numbers in rows under one table."""
        rows = []
        for first in range(0, count, self.lanes):
            rows.append(self._row(np.full(min(self.lanes, count - first), table)))
        return self._resolve(np.concatenate(rows))

    def _low(self, counts: _Ints) -> _Ints:
        """Reads the low bits of numbers, so many of each."""
        ends = self.low_bit + np.cumsum(counts)
        values = np.zeros(len(counts), np.int64)
        if len(counts) and ends[-1] != self.low_bit:
            self._require(int(ends[-1]) <= len(self.low))
            for bit in range(int(counts.max())):
                has = counts > bit
                values[has] |= self.low[(ends - counts)[has] + bit].astype(np.int64) << bit
            self.low_bit = int(ends[-1])
        return values

    def _quanta(self, classes: _Ints, offsets: Sequence[int], most: int = 87) -> _Ints:
        """Reads the quanta, as [heads, tokens, channels].

        Args:
            classes: Of each channel.
            offsets: What to add to them, for each token.
            most: The highest class; the lowest is 0.
        """
        block = self.block
        quanta = np.zeros((self.channels, block.tokens), np.int64)
        coded = block.tokens - self.sinks
        symbols, counts, places = [], [], []
        for first in range(0, self.channels, _LANES) if coded else ():
            group = classes[first : first + _LANES]
            tables = {}
            for offset in set(offsets):
                split = np.clip(group + offset, 0, most)
                low = np.where(split < TABLES, 0, (split - 24) // 4)
                tables[offset] = split - 4 * low, low
            for t in range(self.sinks, block.tokens):
                table, low = tables[offsets[t]]
                symbols.append(self._row(table))
                counts.append(low)
            channel = np.arange(first, first + len(group))
            token = np.arange(self.sinks, block.tokens)
            places.append((channel[None, :] * block.tokens + token[:, None]).ravel())
        if coded:
            low = np.concatenate(counts)
            values = (self._resolve(np.concatenate(symbols)) << low) + self._low(low)
            self._require(bool((abs(values) <= 2**20).all()))
            quanta.reshape(-1)[np.concatenate(places)] = values
        shaped = quanta.reshape(block.heads, block.channels, block.tokens)
        return shaped.transpose(0, 2, 1)

    def _patched(self, elements: bytearray) -> bytes:
        """Replaces the elements that are exceptions."""
        size = SIZES[self.entry.dtype]
        position, place = 0, 0
        while position < len(self.exceptions):
            gap = length = 0
            while True:
                self._require(position < len(self.exceptions) and length < 3)
                byte = self.exceptions[position]
                position += 1
                gap |= (byte & 0x7F) << (7 * length)
                length += 1
                if byte < 0x80:
                    break
            self._require(length == 1 or byte != 0)
            place += gap
            bits = self.exceptions[position : position + size]
            position += size
            self._require(len(bits) == size and (place + 1) * size <= len(elements))
            value = np.frombuffer(bits, bits_dtype(self.entry.dtype))
            self._require(bool(finite(value, self.entry.dtype)[0]))
            elements[place * size : (place + 1) * size] = bits
            place += 1
        return bytes(elements)


def rotation_angles(increments: list[int], tokens: _Ints) -> tuple[Floats, Floats]:
    """Cosines and sines, as [tokens, pairs]."""
    phases = tokens.astype(np.uint64)[:, None] * np.array(increments, np.uint64)
    turns = (phases >> np.uint64(32)).astype(np.int64)
    quadrant = ((turns + 2**29) % 2**32) >> 30
    offset = turns - (quadrant << 30)
    offset = (offset + 2**31) % 2**32 - 2**31
    angle = (offset * 0x6487ED51) >> 29
    square = (angle * angle) >> 31

    def polynomial(*coefficients: int) -> _Ints:
        result = (square * coefficients[0]) >> 31
        for coefficient in coefficients[1:]:
            result = (square * (coefficient + result)) >> 31
        return result

    sine = angle + ((angle * polynomial(-53, 5917, -426088, 17895697, -357913941)) >> 31)
    cosine = 2**31 + polynomial(-591, 53261, -2982616, 89478485, -1073741824)
    odd, upper = quadrant % 2 == 1, quadrant >= 2
    cosine, sine = np.where(odd, -sine, cosine), np.where(odd, cosine, sine)
    cosine, sine = np.where(upper, -cosine, cosine), np.where(upper, -sine, sine)
    scale = np.float32(2.0**-31)
    return cosine.astype(np.float32) * scale, sine.astype(np.float32) * scale
