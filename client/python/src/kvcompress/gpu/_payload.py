# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Payloads of groups on the host: all that can be checked before a device reads them.

What only the entropy decoder sees (words, escapes and low bits that end early or late, quanta out
of range) the kernels check. Section 5 of FORMAT.md, `klt-profile`.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcompress.gpu._profile import Group, Profile
from kvcompress.payload._codec import Entry
from kvcompress.payload._dtypes import SIZES, bits_dtype, finite, round_to_bits
from kvcompress.payload._ecsq_block import read_codes, read_scales, require

LANES = 32
STATES = 4 * LANES  # bytes
HEADER = struct.Struct("<BBHBbBBQfHHII")
"""Of a payload."""
_BLOCK = struct.Struct("<IIIHH")
_SIZE = struct.Struct("<I")  # what a block begins with
_LOWEST_STATE = 1 << 15
_QUARTERS = np.array([0x3F800000, 0x3F5744FD, 0x3F3504F3, 0x3F1837F0], np.uint32).view(np.float32)
_MAX_GAP = 9  # bytes
_MAX_POSITION = 1 << 32

Bits = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


def step_factors(offsets: npt.NDArray[np.int8]) -> npt.NDArray[np.float32]:
    """What the step of tokens with such offsets is multiplied by: 2^(-offset / 4), in binary32."""
    factors: npt.NDArray[np.float32] = _QUARTERS[offsets % 4] * np.exp2(
        -(offsets // 4).astype(np.float32)
    )
    return factors


class Blocks(NamedTuple):
    """The blocks of a payload, each the coded tokens of one batch: a number of each, i64 [blocks].

    Attributes:
        states: Byte of the payload where the states begin; the words follow, then the escapes,
            then the low bits.
        words: How many words it has.
        escapes: Bytes of its escapes.
        low: Bytes of its low bits.
        runs: Of 32 components.
        batch: Of its tokens.
        token: The first one, in the batch.
        tokens: How many.
    """

    states: Numbers
    words: Numbers
    escapes: Numbers
    low: Numbers
    runs: Numbers
    batch: Numbers
    token: Numbers
    tokens: Numbers


class Exceptions(NamedTuple):
    """Elements of a tensor that replace others."""

    elements: npt.NDArray[np.int64]  # of the flattened tensor
    bits: Bits


class Payload(NamedTuple):
    """The payload of a group.

    Attributes:
        classes: Of each component, with the shift; not yet with the offset of a token.
        offsets: Of each token.
        factors: The step of each token: that of the header, halved with a trellis, times f(o).
        position: Of token 0 in the model's input.
        units: Of each tensor.
        sinks: Of each tensor, bits [batches, heads, sinks, channels].
        exceptions: Of each tensor.
    """

    trellis: bool
    position: int
    classes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int8]
    factors: npt.NDArray[np.float32]
    units: npt.NDArray[np.float32]
    sinks: list[Bits]
    blocks: Blocks
    exceptions: list[Exceptions]


def read_payload(data: memoryview, index: int, profile: Profile, entries: list[Entry]) -> Payload:
    """Reads the payload of a group.

    Args:
        data: The payload, whose digest is right.
        index: Number of the group in the profile.
        profile: The profile that the artefact names.
        entries: Of its tensors, in the order of the profile, with shapes that fit it.

    Raises:
        PayloadError: A rule is broken.
    """
    return _Reader(data, profile.groups[index], entries).read(index, profile)


class _Reader:
    """Reads a payload from its front on."""

    def __init__(self, data: memoryview, group: Group, entries: list[Entry]) -> None:
        self.data, self.group, self.entries = data, group, entries
        self.position = 0
        self.holder = next((each for each in entries if each.end > each.begin), entries[-1])
        shape = entries[0].shape
        self.batches, self.tokens = (shape[0] if len(shape) == 4 else 1), shape[-2]

    def require(self, condition: bool, what: str) -> None:
        """Raises PayloadError unless the condition holds."""
        require(condition, self.holder, f"the payload of {self.holder.codec} has {what}")

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        self.require(size <= len(self.data) - self.position, "fewer bytes than it says")
        begin, self.position = self.position, self.position + size
        return self.data[begin : self.position]

    def read(self, index: int, profile: Profile) -> Payload:
        """Reads all of it."""
        mode, flags, group, preset, shift, sinks, zero, position, step, most, zeros, *sizes = (
            HEADER.unpack(self.take(HEADER.size))
        )
        offset_bytes, exception_bytes = sizes
        bits = int(np.float32(step).view(np.uint32))
        self.require((mode, zero, zeros) == (1, 0, 0) and flags < 16, "an unknown mode or flag")
        self.require(group == index, "the number of another group")
        self.require(preset < len(self.group.classes), "an unknown preset")
        self.require(-72 <= shift <= 72, "a shift of classes out of its range")
        self.require(sinks <= self.tokens, "more sinks than tokens")
        self.require(position < _MAX_POSITION, "a position out of its range")
        self.require(2.0**-40 <= step <= 2.0**16 and bits % (1 << 13) == 0, "a bad step")
        self.require(16 <= most <= 256, "blocks of a bad number of tokens")
        self.require(bool(flags & 4) or exception_bytes == 0, "a reserved byte that is not 0")
        units = self._units() if flags & 2 else np.ones(len(self.entries), np.float32)
        offsets = self._offsets(offset_bytes)
        factors = step_factors(offsets)
        trellis = bool(flags & 8)
        sink_bits = self._sinks(sinks, exact=bool(flags & 1))
        blocks = self._blocks(sinks, most)
        self.require(len(self.data) - self.position == exception_bytes, "bytes behind its end")
        return Payload(
            trellis=trellis,
            position=position,
            classes=self.group.classes[preset].astype(np.int32) + shift,
            offsets=offsets,
            factors=np.float32(step / 2 if trellis else step) * factors,
            units=units,
            sinks=sink_bits,
            blocks=blocks,
            exceptions=self._exceptions() if flags & 4 else [],
        )

    def _units(self) -> npt.NDArray[np.float32]:
        units = np.frombuffer(self.take(4 * len(self.entries)), "<f4")
        in_range = (units >= 2.0**-32) & (units <= 2.0**32)
        self.require(
            bool((in_range & (units.view("<u4") % (1 << 13) == 0)).all()), "a bad unit of a tensor"
        )
        return units

    def _offsets(self, size: int) -> npt.NDArray[np.int8]:
        self.require(size % 3 == 0, "offsets of a bad size")
        if size == 0:
            return np.zeros(self.tokens, np.int8)
        runs = np.frombuffer(self.take(size), "u1").reshape(-1, 3)
        counts = runs[:, 0].astype(np.int64) + 256 * runs[:, 1].astype(np.int64)
        offsets = runs[:, 2].astype(np.int8)
        self.require(
            bool((counts > 0).all() and (offsets >= -16).all() and (offsets <= 48).all())
            and int(counts.sum()) == self.tokens,
            "a bad run of offsets",
        )
        return np.repeat(offsets, counts)

    def _sinks(self, count: int, *, exact: bool) -> list[Bits]:
        """Bits of the sinks of each tensor."""
        tensors = []
        for member, entry in zip(self.group.members, self.entries, strict=True):
            dtype, shape = entry.dtype, (self.batches, member.heads, count, member.channels)
            sinks = self.batches * member.heads * count
            if exact:
                bits = np.frombuffer(
                    self.take(sinks * member.channels * SIZES[dtype]), bits_dtype(dtype)
                )
                self.require(bool(finite(bits, dtype).all()), "a sink that is not finite")
            else:
                rows = np.frombuffer(self.take(sinks * (2 + member.channels)), "u1")
                rows = rows.reshape(sinks, 2 + member.channels)
                scales = read_scales(rows[:, :2].tobytes(), self.holder)
                codes = read_codes(rows[:, 2:].tobytes(), self.holder)
                values = codes.reshape(sinks, member.channels) * scales[:, None]
                bits = round_to_bits(values, dtype)
            tensors.append(bits.reshape(shape))
        return tensors

    def _blocks(self, sinks: int, most: int) -> Blocks:
        """Where the blocks are, with the states checked."""
        per_batch = -(-(self.tokens - sinks) // most)
        begins = self._begins(self.batches * per_batch)
        data = np.frombuffer(self.data, np.uint8)
        heads = data[begins[:, None] + np.arange(_BLOCK.size)]
        sizes, words, escapes = heads[:, :12].copy().view("<u4").astype(np.int64).T
        runs, zeros = heads[:, 12:].copy().view("<u2").astype(np.int64).T
        index = np.arange(len(begins))
        batch, token = index // max(1, per_batch), index % max(1, per_batch) * most + sinks
        count = np.minimum(most, self.tokens - token)
        low = sizes - _BLOCK.size - STATES - 2 * words - escapes
        self.require(
            bool(((low >= 0) & (zeros == 0)).all()), "a block whose parts are larger than it is"
        )
        self.require(
            bool((runs <= -(-self.group.components // LANES)).all()),
            "a block with more components than the profile",
        )
        # Kernels count in 32 bits. No class has more than 11 low bits.
        symbols = LANES * runs * count
        taken = (words <= symbols) & (escapes <= 6 * symbols) & (low <= 2 * symbols)
        self.require(bool(taken.all()), "a block with more than its symbols take")
        at = begins + _BLOCK.size
        states = data[at[:, None] + np.arange(STATES)].view("<u4")
        self.require(
            bool(((states >= _LOWEST_STATE) & (states < 1 << 31)).all()),
            "a state out of its range",
        )
        return Blocks(at, words, escapes, low, runs, batch, token, count)

    def _begins(self, count: int) -> Numbers:
        """Where so many blocks begin, which each say how long they are."""
        begins, data, at, end = [], self.data, self.position, len(self.data)
        for _ in range(count):
            size = _SIZE.unpack_from(data, at)[0] if end - at >= _BLOCK.size else end
            if size < _BLOCK.size + STATES or size > end - at:
                break
            begins.append(at)
            at += size
        self.position = at
        self.require(len(begins) == count, "a block that is shorter or longer than it can be")
        return np.array(begins, np.int64)

    def _exceptions(self) -> list[Exceptions]:
        """The exceptions of each tensor, which are all that is left."""
        found = []
        for member, entry in zip(self.group.members, self.entries, strict=True):
            (size,) = struct.unpack("<I", self.take(4))
            elements = self.batches * self.tokens * member.heads * member.channels
            found.append(self._exceptions_of(bytes(self.take(size)), entry.dtype, elements))
        self.require(self.position == len(self.data), "bytes behind its end")
        return found

    def _exceptions_of(self, data: bytes, dtype: str, most: int) -> Exceptions:
        """Reads one list, for a tensor of `most` elements."""
        size, position, element = SIZES[dtype], 0, -1
        elements, values = [], bytearray()
        while position < len(data):
            gap = length = 0
            more = True
            while more:
                self.require(position < len(data) and length < _MAX_GAP, "a bad gap")
                byte = data[position]
                gap |= (byte & 127) << (7 * length)
                position, length, more = position + 1, length + 1, byte >= 128
            self.require(byte != 0 or length == 1, "a bad gap")
            element += gap + 1
            self.require(
                element < most and position + size <= len(data), "an exception behind its tensor"
            )
            elements.append(element)
            values += data[position : position + size]
            position += size
        bits = np.frombuffer(bytes(values), bits_dtype(dtype))
        self.require(bool(finite(bits, dtype).all()), "an exception that is not finite")
        return Exceptions(np.array(elements, np.int64), bits)
