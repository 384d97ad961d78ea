# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Damaged artefacts and profiles: kvcompress.gpu refuses what kv-compress refuses."""

import numpy as np
import pytest
from gpu_decoding import (
    GOLDEN,
    RefusedError,
    Restore,
    Tensors,
    assert_same,
    crafted,
    golden,
    language_patched_once,
    restore,
)

from kvcompress import FailedPreconditionError, InvalidArgumentError
from kvcompress.gpu import Decoder
from kvcompress.payload import PayloadError
from oracle.crafted_profiles import Group, make_profile
from oracle.encoder import seal

__all__ = ["language_patched_once", "restore"]
pytestmark = pytest.mark.slow


def decoded_or_refused(decoder: Decoder, artefact: bytes) -> Tensors | None:
    """What the device decodes; None where it refuses, naming tensor and codec."""
    try:
        return decoder.decode(artefact).tensors
    except PayloadError as error:
        named = (error.code, error.tensor, "klt-profile:high" in str(error))
    assert named == ("DATA_LOSS", "layer_1_value", True)
    return None


def restored_or_refused(restore: Restore, artefact: bytes, profile: bytes) -> Tensors | None:
    """What kv-compress restores; None where it refuses."""
    try:
        return restore(artefact, profile)
    except RefusedError as error:
        message = str(error)
    assert 'tensor "layer_1_value"' in message
    return None


@pytest.mark.parametrize("trellis", [False, True])
def test_flipped_bits_of_payloads_are_refused_where_the_cpu_refuses_them(
    restore: Restore, trellis: bool
) -> None:
    """With digests made right again: both refuse, or both give the same."""
    group = crafted(5, trellis=trellis)
    payload = group.payload()
    decoder = Decoder(group.profile, "cpu")
    rng = np.random.default_rng(6)
    # Headers are short, and most of the bytes are words: each has its share.
    header = [int(bit) for bit in rng.integers(0, 8 * 32, 8)]
    places = header + [int(bit) for bit in rng.integers(0, 8 * len(payload), 12)]
    refused = 0
    for place in places:
        damaged = bytearray(payload)
        damaged[place // 8] ^= 1 << place % 8
        artefact = group.artefact(bytes(damaged))
        expected = restored_or_refused(restore, artefact, group.profile)
        found = decoded_or_refused(decoder, artefact)
        refused += found is None
        assert (found is None) == (expected is None), place
        if found is not None and expected is not None:
            assert_same(found, expected)
    assert 3 < refused < len(places)


@pytest.mark.parametrize("cut", [0, 31, 40, 300, -1])
def test_payloads_that_end_early_or_late(restore: Restore, cut: int) -> None:
    group = crafted(5)
    decoder = Decoder(group.profile, "cpu")
    for payload in (group.payload()[:cut], group.payload() + b"\0"):
        artefact = group.artefact(payload)
        assert restored_or_refused(restore, artefact, group.profile) is None
        assert decoded_or_refused(decoder, artefact) is None


def test_a_quantum_out_of_its_range(restore: Restore) -> None:
    """Low bits would shift it beyond 32 bits, to one that looks right."""
    classes = np.full(4, 71)
    profile = make_profile(("k0:1x4:-",), (), classes)
    for quantum in ((1 << 20) + 1, -(1 << 20) - 1, 1 << 31, -(1 << 31)):
        quanta = np.zeros((1, 16, 4), np.int64)
        quanta[0, 3, 2] = quantum
        artefact = Group(profile, quanta).artefact()
        with pytest.raises(RefusedError):
            restore(artefact, profile)
        with pytest.raises(PayloadError, match="block 0"):
            Decoder(profile, "cpu").decode(artefact)


def test_a_damaged_header_or_payload_is_found_by_its_digest() -> None:
    artefact, profile = golden("cache")
    decoder = Decoder(profile, "cpu")
    for place in (100, len(artefact) - 1):
        damaged = bytearray(artefact)
        damaged[place] ^= 1
        with pytest.raises(PayloadError, match=r"checksum|digest"):
            decoder.decode(damaged)


def test_groups_that_are_not_whole(restore: Restore) -> None:
    artefact, profile = golden("cache")
    length = int.from_bytes(artefact[:8], "little")
    for old, new in ((b" k1 ", b" k7 "), (b" v1 ", b" v0 "), (b"1x2x60x16 k0", b"1x2x61x16 k0")):
        header = artefact[: 8 + length].replace(old, new)
        changed = seal(header) + artefact[8 + length :]
        with pytest.raises(RefusedError):
            restore(changed, profile)
        with pytest.raises(PayloadError, match="klt-profile"):
            Decoder(profile, "cpu").decode(changed)


def test_groups_of_two_codecs_and_of_the_other_codec(restore: Restore) -> None:
    artefact, profile = golden("lossless")
    length = int.from_bytes(artefact[:8], "little")
    lossless, other = b"lossless-profile:high", b"klt-profile:high-high"
    entry = lossless + b" BF16 1x2x60x16 "
    for old, words in (
        (entry + b"k0", "tensors of another codec in its group"),
        (entry + b"v1", "tensors of another codec in its group"),
        (lossless, "an unknown mode or flag"),
    ):
        header = artefact[: 8 + length].replace(old, old.replace(lossless, other))
        changed = seal(header) + artefact[8 + length :]
        with pytest.raises(RefusedError):
            restore(changed, profile)
        with pytest.raises(PayloadError, match=words):
            Decoder(profile, "cpu").decode(changed)


def test_another_profile_does_not_do() -> None:
    artefact, _ = golden("cache")
    with pytest.raises(FailedPreconditionError, match="needs the profile sha256:") as caught:
        Decoder(GOLDEN / "contract.profile", "cpu").decode(artefact)
    assert caught.value.reason == "PROFILE_MISSING"


def test_flipped_bits_of_profiles_are_refused_where_the_cpu_refuses_them(
    restore: Restore,
) -> None:
    """Others are profiles of another digest, which is not the one that is needed."""
    artefact, profile = golden("cache")
    header = 8 + int.from_bytes(profile[:8], "little")
    rng = np.random.default_rng(7)
    refused = 0
    for place in [
        *rng.integers(64, 8 * header, 20),
        *rng.integers(8 * header, 8 * len(profile), 20),
    ]:
        damaged = bytearray(profile)
        damaged[place // 8] ^= 1 << int(place) % 8
        with pytest.raises(RefusedError) as by_cpu:
            restore(artefact, bytes(damaged))
        with pytest.raises((FailedPreconditionError, InvalidArgumentError)) as found:
            Decoder(bytes(damaged), "cpu").decode(artefact)
        mismatch = "needs the profile" in str(by_cpu.value)
        assert mismatch == isinstance(found.value, FailedPreconditionError), place
        refused += not mismatch
    assert 0 < refused < 40


@pytest.mark.parametrize("place", [3, 100, 1000])
def test_a_damaged_profile(place: int) -> None:
    data = bytearray((GOLDEN / "tiny.profile").read_bytes())
    for damaged in (data[:place], data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :]):
        with pytest.raises(InvalidArgumentError, match="profile breaks a rule"):
            Decoder(bytes(damaged), "cpu")


def test_more_tokens_than_the_payload_can_have_take_no_memory() -> None:
    group = crafted(5)
    payload, decoder = group.payload(), Decoder(group.profile, "cpu")
    tokens = (1 << 32) - 2
    shape = (1, tokens - group.sink_tokens, group.quanta.shape[2])
    group.quanta = np.broadcast_to(np.zeros((1, 1, 1), np.int64), shape)
    for window in (None, (0, 1)):
        with pytest.raises(PayloadError, match=f"too few for 1 x {tokens} tokens"):
            decoder.decode(group.artefact(payload), tokens=window)
