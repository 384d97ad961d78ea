# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`klt`, section 5 of FORMAT.md."""

import math
import re
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ._codec import Array, Entry
from ._dtypes import bits_dtype
from ._ecsq import Ecsq, cut, matrix, typed
from ._ecsq_block import BLOCK_HEADER, Block, BlockReader, Fields, read_rotation, require
from ._ecsq_tables import TABLES

_HEADER = struct.Struct("<BBB4sBf")
KLT_BLOCK_HEADER = 28
"""Bytes of a block before the numbers of its reflectors."""
# What may follow the two steps: components, the weight of attention, and how steps follow a layer.
_OPTIONS = {
    "components": "0|[1-9][0-9]?|1[01][0-9]|12[0-8]",
    "weighting": r"0(?:\.[0-9]{0,3}[1-9])?|1",
    "sharpening": r"[01](?:\.[0-9]{0,3}[1-9])?|2",
}
SAME_BASES = 255
"""In place of numbers of reflectors: the bases are those of the block before."""
# 2^(-i / 4), rounded to binary32.
_QUARTERS = np.array([0x3F800000, 0x3F5744FD, 0x3F3504F3, 0x3F1837F0], np.uint32).view(np.float32)

_Ints = npt.NDArray[np.int64]


class Klt(Ecsq):
    """ecsq in the principal components of the tensor."""

    presets = ("contract", "high", "max", "ultra")

    def accepts(self, parameters: str) -> bool:
        """Whether this is a preset, or two steps, perhaps with components and what follows."""
        if super().accepts(parameters):
            return True
        key, _, rest = parameters.partition(",")
        value, *items = rest.split(",")
        names, place, gap = list(_OPTIONS), 0, False
        for item in items:
            name, equals, text = item.rpartition("=")
            index = names.index(name) if name in names else place
            gap |= index > place
            if not place <= index < len(names) or (equals != "") != gap:
                return False
            if name != (names[index] if gap else "") or not re.fullmatch(
                _OPTIONS[names[index]], text
            ):
                return False
            place = index + 1
        return super().accepts(f"{key},{value}")

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload."""
        if not payload or payload[0] != 2 or math.prod(entry.shape) == 0:
            return super().decode(payload, entry)
        return typed(_joint(payload, entry), entry.dtype)


def _blocks(heads: int, tokens: int, channels: int) -> Iterator[tuple[int, Block]]:
    """Cuts a tensor into blocks, each with its first head."""
    parts = -(-heads // (4096 // channels))
    most = min(1024, 2**20 // (-(-heads // parts) * channels))
    for first_head, count in cut(heads, parts):
        for first_token, size in cut(tokens, -(-tokens // most)):
            yield first_head, Block(count, first_token, size, channels)


def read_fields(payload: bytes, entry: Entry) -> tuple[Fields, int]:
    """Reads the header of mode 2, and where its blocks begin.

    Raises:
        PayloadError: It breaks a rule.
    """
    shape = entry.shape
    require(len(shape) >= 2 and shape[-1] <= 1024, entry, "mode 2 is not for this shape")
    require(len(payload) >= _HEADER.size, entry, "the payload is incomplete")
    _, flags, sinks, zeros, _, step = _HEADER.unpack_from(payload)
    rotation, position = read_rotation(payload, _HEADER.size, shape[-1], entry)
    good = not any(zeros) and flags & 3 != 3 and 2.0**-100 <= step <= 2.0**100
    good = good and int(np.float32(step).view(np.uint32)) & 0x1FFF == 0
    require(good, entry, "the header of the payload breaks a rule")
    return Fields(flags, sinks, 0, 0, 0, np.float32(step), rotation), position


def _joint(payload: bytes, entry: Entry) -> bytes:
    """Decodes mode 2."""
    heads, tokens, channels = matrix(entry.shape)
    header, position = read_fields(payload, entry)
    # What is the trellis here says in `ecsq` that sinks are integers.
    fields = header._replace(flags=header.flags & 7 | 8)
    bases: list[_Ints] = []
    bits = bits_dtype(entry.dtype)
    elements = np.zeros((heads, tokens, channels), bits)
    for head, block in _blocks(heads, tokens, channels):
        require(len(payload) >= position + KLT_BLOCK_HEADER, entry, "the payload is incomplete")
        (size,) = struct.unpack_from("<I", payload, position)
        data = payload[position : position + size]
        require(size > KLT_BLOCK_HEADER and len(data) == size, entry, "a block breaks a rule")
        if block.first_token == 0:
            bases = []
        reader = _Reader(fields, block, tokens, data, entry)
        part = np.frombuffer(reader.read_joint(bool(header.flags & 8), bases), bits)
        last = block.first_token + block.tokens
        elements[head : head + block.heads, block.first_token : last] = part.reshape(
            block.heads, block.tokens, channels
        )
        position += size
    require(position == len(payload), entry, "bytes follow the end of the payload")
    return elements.tobytes()


class _Reader(BlockReader):
    """Decodes one block."""

    def _read_header(self, data: bytes) -> int:
        """Reads what is not in an ecsq block's header."""
        heads = max(1, 256 // self.block.channels)
        self.groups = [
            min(heads, self.block.heads - first) * self.block.channels
            for first in range(0, self.block.heads, heads)
        ]
        begin = KLT_BLOCK_HEADER + len(self.groups)
        self._require(len(data) >= begin)
        self.counts = list(data[KLT_BLOCK_HEADER:begin])
        self.offset_table, self.reflector_table = data[BLOCK_HEADER.size - 1], data[24]
        self._require(
            (self.offset_table < 28 or self.offset_table == 255)
            and self.reflector_table < 28
            and not any(data[25:KLT_BLOCK_HEADER])
            and (
                all(m <= min(n, 128) for m, n in zip(self.counts, self.groups, strict=True))
                or all(m == SAME_BASES for m in self.counts)
            )
        )
        return begin

    def read_joint(self, trellis: bool, bases: list[_Ints]) -> bytes:
        """Returns the bytes of the block's elements.

        Args:
            trellis: Whether quanta follow a trellis.
            bases: Of the groups of the block before; replaced by those of this one.
        """
        block = self.block
        classes, means, norms = self._side()
        offsets = np.zeros(block.tokens, np.int64)
        if self.offset_table != 255:
            offsets = np.cumsum(self._numbers(block.tokens, self.offset_table))
            self._require(bool(((offsets >= -16) & (offsets <= 48)).all()))
        if self.counts[0] != SAME_BASES:
            bases[:] = [_basis(reflectors, n) for reflectors, n in self._reflectors()]
        self._require(len(bases) == len(self.groups))
        if trellis:
            levels = self._trellis(classes, offsets)
        else:
            levels = self._quanta(classes, offsets.tolist(), 71).astype(np.int64)
        self._finish()
        with np.errstate(over="ignore", under="ignore"):
            factors = _QUARTERS[offsets % 4] * np.exp2(-(offsets // 4)).astype(np.float32)
            units = self.fields.step * factors * np.float32(2.0**-15 if trellis else 2.0**-14)
            values = np.zeros((block.heads, block.tokens, block.channels), np.float32)
            head = 0
            for basis, n in zip(bases, self.groups, strict=True):
                heads = slice(head, head + n // block.channels)
                rows = levels[heads].transpose(1, 0, 2).reshape(block.tokens, n)
                sums = _product(rows, basis).astype(np.float32) * units[:, None]
                values[heads] = sums.reshape(block.tokens, -1, block.channels).transpose(1, 0, 2)
                head = heads.stop
            shaped = means.reshape(block.heads, 1, block.channels)
            values += shaped.astype(np.float32) * (self.fields.step * np.float32(0.125))
            return self._elements(values, norms)

    def _trellis(self, classes: _Ints, offsets: _Ints) -> _Ints:
        """Reads quanta along the trellis: levels in half steps, [heads, tokens, channels]."""
        block = self.block
        levels = np.zeros((self.channels, block.tokens), np.int64)
        for first in range(0, self.channels, 32):
            group = classes[first : first + 32]
            states = np.zeros(len(group), np.int64)
            for t in range(self.sinks, block.tokens):
                klass = np.clip(group + offsets[t], 0, 71)
                low = np.where(klass < TABLES, 0, (klass - 24) // 4)
                odd = states & 1
                tables = klass - 4 * low + np.where(low == 0, TABLES * odd, 0)
                quanta = (self._resolve(self._row(tables)) << low) + self._low(low)
                self._require(bool((abs(quanta) <= 2**20).all()))
                levels[first : first + 32, t] = 2 * quanta - odd * np.sign(quanta)
                high, middle = states >> 2, states >> 1 & 1
                states = odd ^ middle | ((quanta & 1) ^ high) << 1 | odd << 2
        shaped = levels.reshape(block.heads, block.channels, block.tokens)
        return shaped.transpose(0, 2, 1)

    def _reflectors(self) -> list[tuple[list[_Ints], int]]:
        """Reads the reflectors of each group, with its number of channels."""
        total = sum(self.counts)
        differences = self._numbers(total, self.reflector_table) if total else np.zeros(0, int)
        classes, position = np.zeros(total, np.int64), 0
        for m in self.counts:
            classes[position : position + m] = 15 + np.cumsum(differences[position : position + m])
            position += m
        self._require(bool(((classes >= 0) & (classes < 72)).all()))
        lengths = np.array(
            [n - j for m, n in zip(self.counts, self.groups, strict=True) for j in range(m)], int
        )
        class_of = np.repeat(classes, lengths)
        low = np.where(class_of < 28, 0, (class_of - 24) // 4)
        symbols = [
            self._row((class_of - 4 * low)[first : first + self.lanes])
            for first in range(0, len(class_of), self.lanes)
        ]
        integers = self._resolve(np.concatenate([np.zeros(0, np.int64), *symbols]))
        integers = (integers << low) + self._low(low)
        self._require(bool((abs(integers) <= 32767).all()))
        cut_up = iter(np.split(integers, np.cumsum(lengths)[:-1]) if total else [])
        return [
            ([next(cut_up) for _ in range(m)], n)
            for m, n in zip(self.counts, self.groups, strict=True)
        ]


def _product(a: _Ints, b: _Ints) -> npt.NDArray[np.float64]:
    """Multiplies exactly: no sum here passes 2^43, and binary64 holds 2^53."""
    product: npt.NDArray[np.float64] = a.astype(np.float64) @ b.astype(np.float64)
    return product


def _basis(reflectors: list[_Ints], n: int) -> _Ints:
    """Returns the matrix of a group: row c is principal component c, 14 bits after the point."""
    matrix = np.eye(n, dtype=np.int64) << 14
    for j, k in enumerate(reflectors):
        if not k.any():
            continue
        v = [int(each) for each in k]
        root = math.isqrt(sum(each * each for each in v))
        v[0] += root if v[0] >= 0 else -root
        squares, e = sum(each * each for each in v), 0
        while squares << (2 * e) < 1 << 60:
            e += 1
        length = math.isqrt(squares << (2 * e))
        u = np.array(
            [
                math.copysign(min(32767, ((abs(each) << (15 + e)) + length // 2) // length), each)
                for each in v
            ]
        ).astype(np.int64)
        w = np.clip((_product(u, matrix[j:]).astype(np.int64) + 8192) >> 14, -32768, 32767)
        matrix[j:] = np.clip(matrix[j:] - ((((u[:, None] * w) >> 14) + 1) >> 1), -32768, 32767)
    return matrix
