# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reads artefacts of `klt-profile` and `lossless-profile`, written from core/FORMAT.md alone."""

import hashlib
import json
import re
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcompress.payload._codec import Entry
from kvcompress.payload._dtypes import SIZES
from kvcompress.payload._ecsq_block import BlockReader, read_codes, read_scales, require, rounded
from kvcompress.payload._ecsq_tables import TABLES, Tables
from oracle.residuals import GRIDS, Residuals

_TYPES = {"U64": "<u8", "F32": "<f4", "I16": "<i2", "U8": "u1"}
_HEADER = struct.Struct("<BBHBbBBQfHHII")
_BLOCK = struct.Struct("<IIIHH")
_QUARTERS = np.array([0x3F800000, 0x3F5744FD, 0x3F3504F3, 0x3F1837F0], np.uint32).view(np.float32)
_LANES = 32
_LOSSLESS = "lossless-profile"
_NAMES = ("klt-profile", _LOSSLESS)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Member(NamedTuple):
    """A tensor of a group."""

    role: str
    layer: int
    heads: int
    channels: int
    rotation: int | None


def read_safetensors(data: bytes) -> tuple[dict[str, str], dict[str, tuple[Any, bytes]]]:
    """Returns the metadata, and description and bytes of each tensor, in order."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    begin = 8 + length
    tensors = {
        name: (value, data[begin + value["data_offsets"][0] : begin + value["data_offsets"][1]])
        for name, value in header.items()
    }
    return metadata, tensors


class Profile:
    """A profile file."""

    def __init__(self, data: bytes) -> None:
        """Reads the bytes of one."""
        self.digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        metadata, tensors = read_safetensors(data)
        assert metadata["kvcompress.profile"] in {"1", "2", "3"}
        self.label = metadata["kvcompress.profile.label"]
        kinds = metadata["kvcompress.profile.rotations"]
        self.interleaved = [kind == "interleaved" for kind in kinds.split(",")] if kinds else []
        self.groups = [
            [_member(text) for text in group.split(",")]
            for group in metadata["kvcompress.profile.groups"].split(";")
        ]
        self.tensors = {
            name: np.frombuffer(raw, _TYPES[value["dtype"]]).reshape(value["shape"])
            for name, (value, raw) in tensors.items()
        }


def _member(text: str) -> Member:
    """Reads a tensor of a group, such as k0:3x64:0."""
    match = re.fullmatch(r"([kv])(\d+):(\d+)x(\d+):(\d+|-)", text)
    assert match is not None
    role, layer, heads, channels, rotation = match.groups()
    turned = None if rotation == "-" else int(rotation)
    return Member(role, int(layer), int(heads), int(channels), turned)


def _name(entry: Entry) -> str:
    """The name of the codec, without the preset."""
    return entry.codec.partition(":")[0]


class _Rows(BlockReader):
    """The symbols of a block."""

    def __init__(self, data: bytes, words: int, escapes: int, entry: Entry) -> None:
        """Cuts what follows the block's header."""
        self.entry = entry
        ends = np.cumsum([4 * _LANES, 2 * words, escapes]).tolist()
        self.states = np.frombuffer(data[: ends[0]], "<u4").astype(np.int64)
        self.words = np.frombuffer(data[ends[0] : ends[1]], "<u2").astype(np.int64)
        self.escapes = data[ends[1] : ends[2]]
        self.low = np.unpackbits(np.frombuffer(data[ends[2] :], np.uint8), bitorder="little")
        self.word = self.escape = self.low_bit = 0
        self.coder = Tables.get()

    def levels(self, classes: Ints, offsets: Ints, runs: int, trellis: bool) -> Ints:
        """Reads the levels, [tokens, components]."""
        levels = np.zeros((len(offsets), len(classes)), np.int64)
        for first in range(0, _LANES * runs, _LANES):
            group = classes[first : first + _LANES]
            states = np.zeros(len(group), np.int64)
            for t, offset in enumerate(offsets):
                split = np.clip(group + offset, 0, 71)
                low = np.where(split < TABLES, 0, (split - 24) // 4)
                odd = (states & 1 if trellis else 0 * states) == 1
                symbols = self._resolve(self._row(split - 4 * low + TABLES * (odd & (low == 0))))
                quanta = (symbols << low) + self._low(low)
                level = quanta if not trellis else 2 * quanta - np.where(odd, np.sign(quanta), 0)
                levels[t, first : first + _LANES] = level
                bit, middle, high = states & 1, states >> 1 & 1, states >> 2
                states = 4 * bit + 2 * (high ^ (quanta & 1)) + (bit ^ middle)
        self._finish()
        return levels


class _Group:
    """The payload of a group."""

    def __init__(self, profile: Profile, entries: list[Entry], index: int, payload: bytes) -> None:
        """Reads the header and all quanta."""
        self.profile, self.entries, self.index = profile, entries, index
        self.members = profile.groups[index]
        shape = entries[0].shape
        self.batches, self.tokens = (shape[0] if len(shape) == 4 else 1), shape[-2]
        mode, flags, group, preset, shift, sinks, zero, first, step, most, *sizes = (
            _HEADER.unpack_from(payload)
        )
        require((mode, group, zero, sizes[0]) == (1, index, 0, 0) and flags < 32, entries[0], "bad")
        lossless = _name(entries[0]) == _LOSSLESS
        require(bool(flags & 16) == lossless, entries[0], "residuals of the other codec")
        require(not (lossless and flags & 4), entries[0], "exceptions beside residuals")
        self.exact, self.sinks, self.first, self.step = bool(flags & 1), sinks, first, step
        self.most, self.trellis = most, bool(flags & 8)
        self.classes = self.part("classes")[preset].astype(np.int64) + shift
        position = _HEADER.size
        self.units = np.ones(len(self.members), np.float32)
        if flags & 2:
            self.units = np.frombuffer(payload, "<f4", len(self.members), position)
            position += self.units.nbytes
        runs = np.frombuffer(payload[position : position + sizes[1]], "u1").reshape(-1, 3)
        counts = runs[:, 0].astype(int) + 256 * runs[:, 1].astype(int)
        self.offsets = np.repeat(runs[:, 2].astype(np.int8).astype(np.int64), counts)
        if not len(runs):
            self.offsets = np.zeros(self.tokens, np.int64)
        position = self._read_sinks(payload, position + sizes[1])
        position = self._read_blocks(payload, position)
        require(bool(flags & 4) or not sizes[2], entries[0], "exceptions without their flag")
        self.residuals = self._read_residuals(payload[position:]) if lossless else None
        require(lossless or len(payload) - position == sizes[2], entries[0], "bytes follow")
        self.exceptions = self._read_exceptions(payload[position:]) if flags & 4 else None

    def part(self, name: str) -> "npt.NDArray[np.generic]":
        """A tensor of the group in the profile."""
        return self.profile.tensors[f"group.{self.index}.{name}"]

    def _read_sinks(self, payload: bytes, position: int) -> int:
        self.sink_bits: list[bytes] = []
        for member, entry in zip(self.members, self.entries, strict=True):
            itemsize = SIZES[entry.dtype]
            parts = []
            for _ in range(self.batches * member.heads * self.sinks):
                if self.exact:
                    parts.append(payload[position : position + member.channels * itemsize])
                    position += member.channels * itemsize
                    continue
                scale = read_scales(payload[position : position + 2], entry)
                position += 2
                codes = read_codes(payload[position : position + member.channels], entry)
                position += member.channels
                parts.append(rounded(codes * scale, entry.dtype))
            self.sink_bits.append(b"".join(parts))
        return position

    def _read_exceptions(self, lists: bytes) -> list[dict[int, bytes]]:
        """Returns the elements that replace others, by their number in the tensor."""
        exceptions = []
        for entry in self.entries:
            (size,) = struct.unpack_from("<I", lists)
            bits, lists = lists[4 : 4 + size], lists[4 + size :]
            found, element, itemsize = {}, 0, SIZES[entry.dtype]
            while bits:
                length = next(i for i, byte in enumerate(bits) if byte < 128) + 1
                element += sum((byte & 127) << (7 * i) for i, byte in enumerate(bits[:length]))
                found[element] = bits[length : length + itemsize]
                bits = bits[length + itemsize :]
                element += 1
            exceptions.append(found)
        require(not lists, self.entries[0], "bytes follow")
        return exceptions

    def _read_residuals(self, data: bytes) -> list[Residuals]:
        """Returns the residuals of each tensor."""
        residuals = []
        for member, entry in zip(self.members, self.entries, strict=True):
            residuals.append(Residuals(data, entry, member.heads, member.channels))
            data = data[residuals[-1].size :]
        require(not data, self.entries[0], "bytes follow")
        return residuals

    def _read_blocks(self, payload: bytes, position: int) -> int:
        self.levels = np.zeros((self.batches, self.tokens, len(self.classes)), np.int64)
        for batch in range(self.batches):
            for t in range(self.sinks, self.tokens, self.most):
                size, words, escapes, runs, zero = _BLOCK.unpack_from(payload, position)
                require(zero == 0, self.entries[0], "reserved bytes")
                end = min(t + self.most, self.tokens)
                body = payload[position + _BLOCK.size : position + size]
                rows = _Rows(body, words, escapes, self.entries[0])
                offsets = self.offsets[t:end]
                levels = rows.levels(self.classes, offsets, runs, self.trellis)
                self.levels[batch, t:end] = levels
                position += size
        return position

    def restore(self, place: int) -> bytes:
        """The elements of a member."""
        near = self._restore_near(place)
        if self.residuals is None:
            return near
        member = self.members[place]
        shape = (self.batches, member.heads, self.tokens, member.channels)
        return self.residuals[place].restore(np.frombuffer(near, "<u2").reshape(shape))

    def _restore_near(self, place: int) -> bytes:
        """The same without what residuals change."""
        member, entry = self.members[place], self.entries[place]
        first = sum(m.heads * m.channels for m in self.members[:place])
        window = slice(first, first + member.heads * member.channels)
        matrix = self.part("decode")[:, window].astype(np.int64)
        factor = _QUARTERS[self.offsets % 4] * np.exp2(-(self.offsets // 4)).astype(np.float32)
        step = np.float32(self.step / 2 if self.trellis else self.step)
        units = (step * factor)[None, :, None]
        values = (self.levels @ matrix).astype(np.float32)
        scales, means = (self.part(name)[window].astype(np.float32) for name in ("scales", "means"))
        values = values * (units * (scales * self.units[place])) + means
        shaped = values.reshape(self.batches, self.tokens, member.heads, member.channels)
        values = np.ascontiguousarray(shaped.transpose(0, 2, 1, 3))
        if member.rotation is not None:
            self._turn(values, member.rotation)
        bits = rounded(values.ravel(), entry.dtype)
        row = member.channels * SIZES[entry.dtype]
        elements = np.frombuffer(bits, "u1").reshape(-1, self.tokens, row).copy()
        sinks = np.frombuffer(self.sink_bits[place], "u1").reshape(len(elements), self.sinks, row)
        elements[:, : self.sinks] = sinks
        whole = bytearray(elements.tobytes())
        for element, exact in (self.exceptions[place] if self.exceptions else {}).items():
            whole[element * len(exact) : (element + 1) * len(exact)] = exact
        return bytes(whole)

    def _turn(self, values: Floats, rotation: int) -> None:
        """Turns [batches, heads, tokens, channels] in place."""
        increments = self.profile.tensors[f"rotation.{rotation}"]
        positions = self.first + np.arange(self.tokens, dtype=np.uint64)
        cosine, sine = _cos_sin(positions[:, None] * increments[None, :])
        pairs = len(increments)
        interleaved = self.profile.interleaved[rotation]
        one = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
        other = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
        a, b = values[..., one].copy(), values[..., other].copy()
        values[..., one] = a * cosine - b * sine
        values[..., other] = b * cosine + a * sine


def _cos_sin(phases: npt.NDArray[np.uint64]) -> tuple[Floats, Floats]:
    """Cosine and sine of phases in turns of 2^64."""
    turns = (phases >> np.uint64(32)).astype(np.int64)
    quadrant = ((turns + 2**29) % 2**32) >> 30
    offset = (turns - (quadrant << 30) + 2**31) % 2**32 - 2**31
    angle = (offset * 0x6487ED51) >> 29
    square = (angle * angle) >> 31

    def polynomial(*coefficients: int) -> Ints:
        result = (square * coefficients[0]) >> 31
        for coefficient in coefficients[1:]:
            result = (square * (coefficient + result)) >> 31
        return result

    sine = angle + ((angle * polynomial(-53, 5917, -426088, 17895697, -357913941)) >> 31)
    cosine = 2**31 + polynomial(-591, 53261, -2982616, 89478485, -1073741824)
    odd, upper = quadrant % 2 == 1, quadrant >= 2
    cosine, sine = np.where(odd, -sine, cosine), np.where(odd, cosine, sine)
    scale = np.float32(2.0**-31)
    turned = [np.where(upper, -each, each).astype(np.float32) * scale for each in (cosine, sine)]
    return turned[0], turned[1]


def restore(artefact: bytes, profile: Profile) -> dict[str, bytes]:
    """Returns the elements of the tensors in an artefact that a profile restores, by name."""
    metadata, tensors = read_safetensors(artefact)
    digest, _, label = metadata["kvcompress.profile"].partition(" ")
    assert (digest, label) == (profile.digest, profile.label)
    by_place: dict[tuple[str, int], tuple[Entry, bytes]] = {}
    manifest = metadata["kvcompress.tensors"].split(";")
    for text, (name, (_, payload)) in zip(manifest, tensors.items(), strict=True):
        codec, dtype, shape, role, checksum = text.split(" ")
        if codec.partition(":")[0] not in _NAMES:
            continue
        sizes = tuple(map(int, shape.split("x")))
        entry = Entry(name, codec, dtype, sizes, role[0], int(role[1:]), checksum, 0, 0)
        require(_name(entry) != _LOSSLESS or dtype in GRIDS, entry, "a type that is not taken")
        by_place[role[0], int(role[1:])] = entry, payload
    order = list(tensors)
    restored = {}
    for index, members in enumerate(profile.groups):
        if (members[0].role, members[0].layer) not in by_place:
            continue
        entries = [by_place[member.role, member.layer][0] for member in members]
        last = max(entries, key=lambda entry: order.index(entry.name))
        payload = by_place[last.role, last.layer or 0][1]
        require(len({_name(entry) for entry in entries}) == 1, last, "a group of two codecs")
        group = _Group(profile, entries, index, payload)
        for place, entry in enumerate(entries):
            restored[entry.name] = group.restore(place)
    return restored
