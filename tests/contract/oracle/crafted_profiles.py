# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Makes profiles, and artefacts that need them, from numbers: written from core/FORMAT.md alone.

An encoder writes what suits a cache; these write whatever the format allows.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xxhash

from kvcompress.payload._ecsq_tables import ESCAPE, TABLES, Tables
from oracle.encoder import ZEROS, assemble
from oracle.profiles import Profile
from oracle.source import Tensor, write

Ints = npt.NDArray[np.int64]
_LANES = 32
_LOWEST = 1 << 15


def make_profile(
    members: Sequence[str], rotations: Sequence[tuple[str, int]], classes: Ints, seed: int = 0
) -> bytes:
    """Returns a profile of one group, with a random basis and one preset, `high`.

    Args:
        members: Such as `k0:2x16:0`.
        rotations: Kind and pairs of each.
        classes: Of each component.
        seed: Of the numbers.
    """
    rng = np.random.default_rng(seed)
    sizes = [part.split(":")[1].split("x") for part in members]
    channels = sum(int(heads) * int(width) for heads, width in sizes)
    shape = (len(classes), channels)
    tensors = [
        Tensor(f"rotation.{i}", "U64", (pairs,), rng.bytes(8 * pairs))
        for i, (_, pairs) in enumerate(rotations)
    ]
    numbers = {
        "means": ("F32", (channels,), rng.standard_normal(channels).astype("<f4")),
        "scales": ("F32", (channels,), rng.uniform(1e-5, 1e-4, channels).astype("<f4")),
        "decode": ("I16", shape, rng.integers(-32767, 32768, shape).astype("<i2")),
        "classes": ("U8", (1, len(classes)), classes.astype("u1")),
    }
    for name, (dtype, sizes_of, values) in numbers.items():
        tensors.append(Tensor(f"group.0.{name}", dtype, sizes_of, values.tobytes()))
    prefix = "kvcompress.profile"
    metadata = {
        prefix: "1",
        f"{prefix}.label": "crafted",
        f"{prefix}.training": "",
        f"{prefix}.presets": "high=1",
        f"{prefix}.rotations": ",".join(kind for kind, _ in rotations),
        f"{prefix}.groups": ",".join(members),
    }
    return write(tensors, metadata)


@dataclass
class Group:
    """The payload of the only group of a profile.

    Attributes:
        profile: What `make_profile` returned.
        quanta: [batches, tokens without sinks, components].
        offsets: Of each token, sinks too; all 0 without any.
        sinks: Bytes of all sinks.
        exceptions: The list of each tensor; None without the flag.
        residuals: Those of each tensor, which make it a group of `lossless-profile`.
    """

    profile: bytes
    quanta: Ints
    dtype: str = "BF16"
    step: float = 1.0
    shift: int = 0
    position: int = 0
    block_tokens: int = 16
    trellis: bool = False
    offsets: Sequence[int] = ()
    sink_tokens: int = 0
    exact_sinks: bool = False
    sinks: bytes = b""
    units: Sequence[float] = ()
    exceptions: list[bytes] | None = None
    residuals: list[bytes] | None = None
    read: Profile = field(init=False)

    def __post_init__(self) -> None:
        """Reads the profile."""
        self.read = Profile(self.profile)

    @property
    def tokens(self) -> int:
        """Of each batch."""
        return int(self.quanta.shape[1]) + self.sink_tokens

    def payload(self) -> bytes:
        """The bytes of the payload."""
        offsets = np.array(self.offsets or [0] * self.tokens)
        classes = self.read.tensors["group.0.classes"][0].astype(np.int64) + self.shift
        blocks = b"".join(
            encode_block(
                batch[t : t + self.block_tokens],
                classes,
                offsets[self.sink_tokens :][t : t + self.block_tokens],
                self.trellis,
            )
            for batch in self.quanta
            for t in range(0, self.quanta.shape[1], self.block_tokens)
        )
        runs = b"".join(struct.pack("<Hb", 1, each) for each in self.offsets)
        lists = b"".join(struct.pack("<I", len(each)) + each for each in self.exceptions or [])
        flags = self.exact_sinks | 2 * bool(self.units) | 8 * self.trellis
        flags |= 4 * (self.exceptions is not None) | 16 * (self.residuals is not None)
        sizes = (self.block_tokens, 0, len(runs), len(lists))
        first = (1, flags, 0, 0, self.shift, self.sink_tokens, 0, self.position, self.step)
        header = struct.pack("<BBHBbBBQfHHII", *first, *sizes)
        units = np.array(self.units, "<f4").tobytes()
        return header + units + runs + self.sinks + blocks + lists + b"".join(self.residuals or [])

    def artefact(self, payload: bytes | None = None) -> bytes:
        """An artefact of the group alone, also with a payload that breaks it."""
        payload = self.payload() if payload is None else payload
        members, batches = self.read.groups[0], len(self.quanta)
        payloads = [
            (f"layer_{m.layer}_{'key' if m.role == 'k' else 'value'}", b"") for m in members
        ]
        payloads[-1] = (payloads[-1][0], payload)
        codec = "klt-profile" if self.residuals is None else "lossless-profile"
        manifest = [
            f"{codec}:high {self.dtype} {batches}x{m.heads}x{self.tokens}x{m.channels} "
            f"{m.role}{m.layer} " + (xxhash.xxh3_128_hexdigest(data) if data else "-")
            for m, (_, data) in zip(members, payloads, strict=True)
        ]
        metadata = {
            "kvcompress.checksum": f"xxh3-128:{ZEROS}",
            "kvcompress.format": "1",
            "kvcompress.layout": "bhtd",
            "kvcompress.tensors": ";".join(manifest),
            "kvcompress.profile": f"sha256:{hashlib.sha256(self.profile).hexdigest()} crafted",
        }
        return assemble(payloads, metadata)


def gap(count: int) -> bytes:
    """A gap between exceptions."""
    out = bytearray()
    while count >= 128:
        out.append(count & 127 | 128)
        count >>= 7
    return bytes([*out, count])


def encode_block(quanta: Ints, classes: Ints, offsets: Ints, trellis: bool = False) -> bytes:
    """Codes a block, with all components in their runs."""
    rows, low_bits = [], []
    for first in range(0, len(classes), _LANES):
        own = classes[first : first + _LANES]
        state = np.zeros(len(own), np.int64)
        for quantum, offset in zip(quanta[:, first : first + _LANES], offsets, strict=True):
            split = np.clip(own + offset, 0, 71)
            low = np.where(split < TABLES, 0, (split - 24) // 4)
            odd = (state & 1 if trellis else 0 * state) == 1
            rows.append((split - 4 * low + TABLES * (odd & (low == 0)), quantum >> low))
            for value, count in zip(quantum, low, strict=True):
                low_bits += [int(value) >> bit & 1 for bit in range(count)]
            bit, middle, high = state & 1, state >> 1 & 1, state >> 2
            state = 4 * bit + 2 * (high ^ (quantum & 1)) + (bit ^ middle)
    states, words, escapes = encode_rows(rows)
    body = states + words + escapes
    body += np.packbits(np.array(low_bits, np.uint8), bitorder="little").tobytes()
    runs = -(-len(classes) // _LANES)
    return struct.pack("<IIIHH", 16 + len(body), len(words) // 2, len(escapes), runs, 0) + body


def encode_rows(
    rows: Sequence[tuple[Ints, Ints]], end: int = _LOWEST
) -> tuple[bytes, bytes, bytes]:
    """Codes rows, each of numbers under their tables.

    Args:
        rows: Tables and numbers of each.
        end: The state that each lane ends with when it is read.

    Returns:
        States, words and escapes.
    """
    intervals, escapes = [], b""
    for tables, numbers in rows:
        row = []
        for table, number in zip(tables, numbers, strict=True):
            interval = _interval(int(table), int(number)) if number != ESCAPE else None
            if interval is None:
                interval = _interval(int(table), ESCAPE)
                narrow = -32768 < number < 32768
                escapes += struct.pack("<h", number) if narrow else b"\0\x80"
                escapes += b"" if narrow else struct.pack("<i", number)
            row.append(interval)
        intervals.append(row)
    states, words = np.full(_LANES, end, np.int64), []
    for row in reversed(intervals):
        for lane, interval in reversed(list(enumerate(row))):
            assert interval is not None
            begin, frequency = interval
            if states[lane] >= frequency << 20:
                words.append(int(states[lane]) & 0xFFFF)
                states[lane] >>= 16
            whole, rest = divmod(int(states[lane]), frequency)
            states[lane] = whole * 2048 + begin + rest
    return states.astype("<u4").tobytes(), np.array(words[::-1], "<u2").tobytes(), escapes


def _interval(table: int, symbol: int) -> tuple[int, int] | None:
    """First slot and frequency of a symbol; None where the table lacks it."""
    slots = np.flatnonzero(Tables.get().symbol[table] == symbol)
    return (int(slots[0]), len(slots)) if len(slots) else None
