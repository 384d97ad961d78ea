# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Residuals of `lossless-profile` that no encoder writes: read alike, or refused alike."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvcompress import Client, DataLossError
from kvcompress.payload import PayloadError
from kvcompress.payload._ecsq_tables import ESCAPE, SLOTS, Tables
from oracle.crafted_profiles import Group, gap, make_profile
from oracle.crafted_residuals import (
    Bits,
    Block,
    Ints,
    block_of,
    encode,
    joined,
    stored,
    tensor_of,
)
from oracle.profiles import Profile, read_safetensors, restore
from oracle.residuals import BLOCK, GRIDS
from oracle.server import is_serving, running_server

MEMBERS = ("k0:2x12:0", "v0:1x5:-", "k1:1x7:1", "v1:3x16:-")
ROTATIONS = (("interleaved", 4), ("halves", 3))
SHAPES = {"layer_0_key": (2, 12), "layer_0_value": (1, 5)}
SHAPES |= {"layer_1_key": (1, 7), "layer_1_value": (3, 16)}
TOKENS = 150
PROFILE = make_profile(MEMBERS, ROTATIONS, np.random.default_rng(1).integers(4, 36, 37), 1)
# The tensor whose residuals are damaged, and the one that has the payload of the group.
DAMAGED, HOLDER = "layer_0_value", "layer_1_value"
# From the least floor to the highest. With that all indices are 0, and no block is coded.
BASES = {0: 4, 500: 4, 700: 4, 800: 4, 850: 2, 900: 1, 1000: 0, 65_280: 0}


@pytest.fixture(scope="module")
def user(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server that has the profile."""
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "crafted.profile").write_bytes(PROFILE)
    with running_server(bin_dir, "--profile-directory", str(folder)) as server:
        with Client(server.target, timeout=60) as client:
            yield client
        assert is_serving(server.target)
        assert server.process.poll() is None


def group(seed: int, dtype: str = "BF16", *, batches: int = 1, trellis: bool = False) -> Group:
    """A payload of `klt-profile` with sinks, offsets and units."""
    rng = np.random.default_rng(seed)
    sinks = b""
    for heads, channels in SHAPES.values():
        for _ in range(batches * heads):
            sinks += b"\x80\x3c" + rng.integers(-127, 128, channels).astype("i1").tobytes()
    return Group(
        PROFILE,
        rng.integers(-4, 5, (batches, TOKENS - 1, 37)),
        dtype,
        shift=2,
        step=0.75,
        position=(1 << 32) - 7,
        trellis=trellis,
        offsets=[int(each) for each in rng.integers(-16, 20, TOKENS)],
        sink_tokens=1,
        sinks=sinks,
        units=[0.5, 1, 3, 2.0**-20],
    )


def near(of: Group) -> dict[str, Bits]:
    """What a group restores without residuals."""
    batches = len(of.quanta)
    return {
        name: np.frombuffer(data, "<u2").reshape(batches, *SHAPES[name][:1], TOKENS, -1)
        for name, data in restore(of.artefact(), Profile(PROFILE)).items()
    }


def with_residuals(of: Group, residuals: dict[str, bytes]) -> Group:
    """The group with those of each tensor."""
    return replace(of, residuals=[residuals[name] for name in SHAPES])


def same(user: Client, artefact: bytes) -> dict[str, bytes]:
    """What the reader and the service restore of an artefact, which is the same."""
    expected = restore(artefact, Profile(PROFILE))
    restored = user.decompress(artefact).safetensors
    assert restored is not None
    _, tensors = read_safetensors(restored)
    assert {name: data for name, (_, data) in tensors.items()} == expected
    return expected


def refused(user: Client, artefact: bytes) -> None:
    """Requires that the reader and the service find the damage, and whose it is.

    That is the tensor with the payload, or the one whose residuals these are.
    """
    with pytest.raises(PayloadError) as offline:
        restore(artefact, Profile(PROFILE))
    assert offline.value.code == "DATA_LOSS"
    for verify_only in (False, True):
        with pytest.raises(DataLossError) as caught:
            user.decompress(artefact, verify_only=verify_only)
        assert caught.value.reason == "PAYLOAD_DAMAGED"
        assert caught.value.tensor in (HOLDER, DAMAGED)


def drawn(rng: np.random.Generator, dtype: str, restored: Bits, levels: Ints) -> Bits:
    """Elements whose differences are as likely as their tables say, and a few of any bits."""
    grid, near_bits = GRIDS[dtype], restored.astype(np.int64)
    floors = np.broadcast_to(grid.floors(levels), restored.shape)
    slots = rng.integers(0, SLOTS, restored.shape)
    symbols = Tables.get().symbol[grid.tables(near_bits, levels), slots]
    symbols = np.where(symbols == ESCAPE, rng.integers(-400, 401, restored.shape), symbols)
    indices = grid.indices(near_bits, floors) + symbols
    every, source = np.arange(1 << 16), near_bits.copy()
    for floor in np.unique(floors):
        of_every = grid.indices(every, floor)
        order = np.argsort(of_every, kind="stable")
        here = floors == floor
        first, last = (
            np.searchsorted(of_every[order], indices[here], side) for side in ("left", "right")
        )
        chosen = order[np.minimum(rng.integers(first, np.maximum(last, first + 1)), 65_535)]
        source[here] = np.where(last > first, chosen, source[here])
    any_bits = rng.integers(0, 1 << 16, restored.shape)
    return np.where(rng.random(restored.shape) < 0.01, any_bits, source).astype("<u2")


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_any_bits_under_any_levels(user: Client, dtype: str, base: int, batches: int) -> None:
    """Also those that are as far from what is restored without residuals as can be."""
    of = group(base, dtype, batches=batches, trellis=batches == 2)
    rng = np.random.default_rng(base)
    residuals, sources, coded = {}, {}, 0
    for name, restored in near(of).items():
        levels = rng.integers(0, 256, SHAPES[name]).astype(np.uint8)
        source = drawn(rng, dtype, restored, base + levels.astype(np.int64)[:, None])
        residuals[name] = encode(dtype, source, restored, base, levels)
        sources[name] = source.tobytes()
        coded += len(residuals[name]) < len(plain(restored))
    assert coded >= BASES[base]
    assert same(user, with_residuals(of, residuals).artefact()) == sources


def plain(restored: Bits) -> bytes:
    """Residuals without codes: the elements are those that are restored without them."""
    heads, channels = restored.shape[1], restored.shape[3]
    blocks = b"".join(
        stored(restored[batch, head].tobytes())
        for batch in range(len(restored))
        for head in range(heads)
    )
    return tensor_of(blocks, 1000, bytes(heads * channels))


class Clean:
    """A group that keeps every rule, and the block of the tensor that is damaged."""

    def __init__(self) -> None:
        """Makes it, with escapes and low bits in the block."""
        self.group = group(5)
        restored = near(self.group)
        self.residuals = {name: plain(each) for name, each in restored.items()}
        rng = np.random.default_rng(6)
        self.levels = bytes(range(0, 10, 2))
        self.near = restored[DAMAGED].astype(np.int64).ravel()
        self.source = self.near + rng.integers(-9, 10, self.near.shape)
        # Far off, of index 0, below the floor and above, and not finite.
        self.source[:6] = 0x0000, 0x8001, 0x3C00, 0x7F80, 0xFFC1, 0x0180
        channels = 1010 + np.frombuffer(self.levels, "u1").astype(np.int64)
        self.channels = np.tile(channels, TOKENS)
        self.block = block_of(self.source, self.near, self.channels, "BF16")
        self.parts = self.block.parts()

    def artefact(self, blocks: bytes, base: int = 1010, more: int = 0) -> bytes:
        """With other blocks of the tensor, base, and size."""
        return self.whole(tensor_of(blocks, base, self.levels, more))

    def whole(self, residuals: bytes) -> bytes:
        """With other residuals of the tensor."""
        return with_residuals(self.group, self.residuals | {DAMAGED: residuals}).artefact()

    def changed(self, place: int, part: bytes) -> bytes:
        """With another part of the block."""
        return self.artefact(joined([*self.parts[:place], part, *self.parts[place + 1 :]]))

    def with_difference(self, place: int, difference: int, low: tuple[int, int]) -> bytes:
        """With another difference of an element."""
        differences = self.block.differences.copy()
        differences[place] = difference
        bits = [*self.block.low[:place], low, *self.block.low[place + 1 :]]
        return self.artefact(joined(Block(self.block.tables, differences, bits).parts()))

    def with_low(self, place: int, low: int) -> bytes:
        """With other low bits of an element."""
        bits = [*self.block.low]
        bits[place] = low, bits[place][1]
        return self.artefact(joined(Block(self.block.tables, self.block.differences, bits).parts()))


CLEAN = Clean()


def head(size: int, words: int, escapes: int) -> bytes:
    """The block of the damaged tensor, with a header of its own."""
    return BLOCK.pack(size, words, escapes) + joined(CLEAN.parts)[BLOCK.size :]


def first_state(state: int) -> bytes:
    """The states of the block, of which the first is another."""
    return struct.pack("<I", state) + CLEAN.parts[0][4:]


def first_escape(value: int) -> bytes:
    """The escapes of the block, of which the first is another in the long form."""
    return b"\0\x80" + struct.pack("<i", value) + CLEAN.parts[2][2:]


def padded(size: int) -> bytes:
    """The block with low bits up to a size."""
    block = joined(CLEAN.parts)
    return joined([*CLEAN.parts[:3], CLEAN.parts[3] + bytes(size - len(block))])


def elements(count: int) -> bytes:
    """So many of the tensor, as they are."""
    return (CLEAN.source.astype("<u2").tobytes() * 2)[: 2 * count]


MOST = 2 * len(CLEAN.source) + BLOCK.size
WORDS, ESCAPES = len(CLEAN.parts[1]) // 2, len(CLEAN.parts[2])
SIZE = len(joined(CLEAN.parts))
COUNT = len(CLEAN.source)
DAMAGE: dict[str, Callable[[], bytes]] = {
    "a block without a header": lambda: CLEAN.artefact(joined(CLEAN.parts)[:11]),
    "no block": lambda: CLEAN.artefact(b""),
    "a block too many": lambda: CLEAN.artefact(2 * joined(CLEAN.parts)),
    "a byte behind the blocks": lambda: CLEAN.artefact(joined(CLEAN.parts) + b"\0"),
    "a size of 0": lambda: CLEAN.artefact(head(0, WORDS, ESCAPES)),
    "a size below the header": lambda: CLEAN.artefact(head(11, WORDS, ESCAPES)),
    "a size of the header": lambda: CLEAN.artefact(head(12, WORDS, ESCAPES)),
    "a size below the states": lambda: CLEAN.artefact(head(12 + 127, 0, 0)),
    "a size beyond the residuals": lambda: CLEAN.artefact(head(SIZE + 1, WORDS, ESCAPES)),
    "the largest size": lambda: CLEAN.artefact(head((1 << 32) - 1, WORDS, ESCAPES)),
    "as large as can be, with zeros": lambda: CLEAN.artefact(padded(MOST)),
    "larger than can be": lambda: CLEAN.artefact(padded(MOST + 1)),
    "words beyond the block": lambda: CLEAN.artefact(head(SIZE, SIZE, ESCAPES)),
    "more words than there are": lambda: CLEAN.artefact(head(SIZE, (1 << 32) - 2, ESCAPES)),
    "escapes beyond the block": lambda: CLEAN.artefact(head(SIZE, WORDS, (1 << 32) - 1)),
    "words that end early": lambda: CLEAN.changed(1, CLEAN.parts[1][:-2]),
    "a word too many": lambda: CLEAN.changed(1, CLEAN.parts[1] + b"\0\0"),
    "no escapes": lambda: CLEAN.changed(2, b""),
    "half an escape less": lambda: CLEAN.changed(2, CLEAN.parts[2][:-1]),
    "an escape less": lambda: CLEAN.changed(2, CLEAN.parts[2][:-2]),
    "an escape too many": lambda: CLEAN.changed(2, CLEAN.parts[2] + b"\0\0"),
    "half an escape too many": lambda: CLEAN.changed(2, CLEAN.parts[2] + b"\0"),
    "an escape without its long form": lambda: CLEAN.changed(2, CLEAN.parts[2][:-2] + b"\0\x80"),
    "an escape in the longer form": lambda: CLEAN.changed(2, first_escape(-32767)),
    "an escape out of range": lambda: CLEAN.changed(2, first_escape((1 << 20) + 1)),
    "an escape below its range": lambda: CLEAN.changed(2, first_escape(-(1 << 20) - 1)),
    "low bits that end early": lambda: CLEAN.changed(3, CLEAN.parts[3][:-1]),
    "no low bits": lambda: CLEAN.changed(3, b""),
    "a byte of low bits too many": lambda: CLEAN.changed(3, CLEAN.parts[3] + b"\0"),
    "a state below its range": lambda: CLEAN.changed(0, first_state((1 << 15) - 1)),
    "a state above its range": lambda: CLEAN.changed(0, first_state(1 << 31)),
    "states that end elsewhere": lambda: CLEAN.artefact(joined(CLEAN.block.parts((1 << 15) + 1))),
    "a level above its range": lambda: CLEAN.artefact(joined(CLEAN.parts), base=65_528),
    "an element of another index than 0": lambda: CLEAN.with_low(0, 0x4380),
    "a negative one": lambda: CLEAN.with_low(0, 0xC380),
    "a magnitude of 2^15": lambda: CLEAN.with_difference(3, 1 << 15, (0, 0)),
    "the largest difference": lambda: CLEAN.with_difference(3, 1 << 20, (0, 0)),
    "the least difference": lambda: CLEAN.with_difference(4, -(1 << 20), (0, 0)),
    "a difference of more": lambda: CLEAN.with_difference(3, (1 << 20) + 1, (0, 0)),
    "elements as they are, and escapes": lambda: CLEAN.artefact(stored(elements(COUNT), escapes=1)),
    "elements as they are, one less": lambda: CLEAN.artefact(stored(elements(COUNT - 1))),
    "elements as they are, one more": lambda: CLEAN.artefact(stored(elements(COUNT + 1))),
    "elements as they are, half of one less": lambda: CLEAN.artefact(stored(elements(COUNT)[:-1])),
    "elements as they are, of a larger size": lambda: CLEAN.artefact(
        stored(elements(COUNT), more=1)
    ),
    "residuals that are longer": lambda: CLEAN.artefact(joined(CLEAN.parts), more=1),
    "residuals that are shorter": lambda: CLEAN.artefact(joined(CLEAN.parts), more=-1),
    "residuals of no size": lambda: CLEAN.whole(bytes(8)),
    "residuals of the largest size": lambda: CLEAN.whole(b"\xff" * 8),
    "residuals of half the largest size": lambda: CLEAN.whole(bytes(7) + b"\x80"),
    "levels that end early": lambda: CLEAN.whole(struct.pack("<QH", 6, 1010) + bytes(4)),
    "a base that ends early": lambda: CLEAN.whole(struct.pack("<QB", 1, 1)),
    "no residuals": lambda: CLEAN.whole(b""),
}


def test_the_block_that_is_damaged_keeps_the_rules(user: Client) -> None:
    found = same(user, CLEAN.artefact(joined(CLEAN.parts)))
    assert found[DAMAGED] == CLEAN.source.astype("<u2").tobytes()
    assert same(user, CLEAN.artefact(stored(elements(COUNT)))) == found
    assert same(user, CLEAN.artefact(joined(CLEAN.parts), base=1010)) == found
    assert ESCAPES > 4
    assert SIZE < MOST - 1
    # Low bits do not fill their last byte.
    assert sum(count for _, count in CLEAN.block.low) % 8 != 0
    assert CLEAN.block.low[0] == (0, 16)


@pytest.mark.parametrize("name", DAMAGE)
def test_a_rule_that_is_broken(user: Client, name: str) -> None:
    refused(user, DAMAGE[name]())


def test_an_unused_bit(user: Client) -> None:
    low = CLEAN.parts[3]
    refused(user, CLEAN.changed(3, low[:-1] + bytes([low[-1] | 0x80])))


def test_residuals_that_end_early_or_late(user: Client) -> None:
    payload = with_residuals(CLEAN.group, CLEAN.residuals).payload()
    assert same(user, CLEAN.group.artefact())
    lossless = with_residuals(CLEAN.group, CLEAN.residuals)
    for broken in (payload[:-1], payload + b"\0", payload[: -len(CLEAN.residuals[HOLDER])]):
        refused(user, lossless.artefact(broken))


def test_flags_of_the_other_codec(user: Client) -> None:
    """Residuals are of one codec alone, and go without exceptions."""
    lossless = with_residuals(CLEAN.group, CLEAN.residuals)
    size = len(CLEAN.group.payload())
    exceptions = replace(CLEAN.group, exceptions=[gap(0) + b"\x80\x3f", b"", b"", b""])

    def flipped(payload: bytes, flag: int) -> bytes:
        return payload[:1] + bytes([payload[1] ^ flag]) + payload[2:]

    # klt-profile, with the flag and without residuals, with both, and with residuals alone.
    refused(user, CLEAN.group.artefact(flipped(CLEAN.group.payload(), 16)))
    refused(user, CLEAN.group.artefact(lossless.payload()))
    refused(user, CLEAN.group.artefact(flipped(lossless.payload(), 16)))
    # lossless-profile likewise, and with exceptions in addition to residuals or in their place.
    refused(user, lossless.artefact(flipped(lossless.payload(), 16)))
    refused(user, lossless.artefact(CLEAN.group.payload()))
    refused(user, lossless.artefact(flipped(lossless.payload()[:size], 16)))
    refused(user, lossless.artefact(exceptions.payload()))
    refused(user, lossless.artefact(flipped(exceptions.payload(), 16)))
    refused(user, lossless.artefact(flipped(lossless.payload(), 4)))
    refused(user, lossless.artefact(flipped(lossless.payload(), 32)))
    # The place of the bytes of exceptions is 0.
    payload = lossless.payload()
    refused(user, lossless.artefact(payload[:28] + struct.pack("<I", 1) + payload[32:]))


def test_flipped_bits_of_residuals(user: Client) -> None:
    """With digests made right again: both refuse, or both give the same."""
    lossless = with_residuals(
        CLEAN.group,
        CLEAN.residuals | {DAMAGED: tensor_of(joined(CLEAN.parts), 1010, CLEAN.levels)},
    )
    payload = lossless.payload()
    assert lossless.residuals is not None
    begin = len(CLEAN.group.payload()) + len(lossless.residuals[0])
    end = begin + len(lossless.residuals[1])
    rng = np.random.default_rng(8)
    # Headers are short, and most of the bytes are words and low bits: each has its share.
    places = [8 * begin + bit for bit in range(0, 8 * 27, 3)]
    places += [int(bit) for bit in rng.integers(8 * (begin + 27), 8 * end, 60)]
    places += [8 * end - int(bit) for bit in rng.integers(1, 8 * len(CLEAN.parts[3]), 60)]
    accepted = 0
    for place in places:
        damaged = bytearray(payload)
        damaged[place // 8] ^= 1 << place % 8
        artefact = lossless.artefact(bytes(damaged))
        try:
            expected = restore(artefact, Profile(PROFILE))
        except PayloadError:
            refused(user, artefact)
            continue
        assert same(user, artefact) == expected, place
        accepted += 1
    assert 0 < accepted < len(places) / 2
