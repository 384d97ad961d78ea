# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Mutated headers: the service, the offline reader and the reference library agree."""

import random
import struct

import pytest
import safetensors

from kvcompress import Array, Client, InvalidArgumentError, KVCompressError, payload
from oracle import caches, encoder
from oracle.reference import deserialize

CASES = 600
PIECES = [b'"', b",", b":", b"{", b"}", b"[", b"]", b"0", b"1", b"4", b" ", b";", b"x", b"-", b"+"]
PIECES += [b"00", b"1e0", b"1.0", b"null", b"true", b"18446744073709551616", b'""', b'"a":"b"']
PIECES += [b"F16", b"BF16", b"U8", b"int4:32", b"kvcompress.", b"kvcompress.label.", b"k0", b"v0"]
PIECES += [b"__metadata__", b"shape", b"\\u0041", b"\\n", b"\\ud83d\\ude00", b"\\ud800"]
PIECES += ["ü".encode(), b"\xff", b"\n", b"\0", b""]


def mutated(file: bytes, rng: random.Random, first: int) -> tuple[bytes, bytes]:
    """Changes a header's text from position `first` on; returns it, and what follows."""
    (length,) = struct.unpack_from("<Q", file)
    text = bytearray(file[8 : 8 + length].rstrip(b" "))
    for _ in range(rng.choice([1, 1, 1, 2])):
        begin = rng.randrange(first, len(text))
        text[begin : begin + rng.choice([0, 0, 1, 1, 2, 3, 8])] = rng.choice(PIECES)
    text += b" " * (-(8 + len(text)) % 8)
    return struct.pack("<Q", len(text)) + bytes(text), file[8 + length :]


def read_offline(data: bytes) -> dict[str, Array] | str:
    """Reads an artefact with kvcompress.payload; returns the code when it is refused."""
    try:
        return payload.read(data)
    except payload.PayloadError as error:
        return error.code


@pytest.mark.parametrize("seed", [1, 2])
def test_artefacts_with_right_checksums(client: Client, seed: int) -> None:
    rng = random.Random(seed)
    good = [
        encoder.encode(caches.tiny(), 32, {"tenant": "a"}).data,
        encoder.encode(caches.mixed(), 64, {"a": "", "b": "x"}).data,
    ]
    after_checksum = good[0].index(b'"kvcompress.format"') - 8
    accepted = 0
    for _ in range(CASES):
        header, body = mutated(rng.choice(good), rng, after_checksum)
        data = encoder.seal(header) + body
        offline = read_offline(data)
        if isinstance(offline, str):
            with pytest.raises(KVCompressError) as caught:
                client.decompress(data)
            # Where two rules are broken, or a codec's name is, either may come first.
            assert {offline, caught.value.code} <= {"DATA_LOSS", "UNIMPLEMENTED"}, data
        else:
            accepted += 1
            restored = client.decompress(data).tensors
            assert restored is not None
            assert list(restored) == list(offline)
            for name, array in offline.items():
                assert restored[name].tobytes() == array.tobytes(), data
    assert 0 < accepted < CASES // 2


@pytest.mark.parametrize("seed", [1, 2])
def test_source_files(client: Client, seed: int) -> None:
    rng = random.Random(seed)
    good = [caches.tiny(), caches.mixed(), caches.scrambled()]
    accepted = 0
    for _ in range(CASES):
        header, body = mutated(rng.choice(good), rng, 1)
        data = header + body
        try:
            artefact = client.compress(data, codec="int4").artefact
        except InvalidArgumentError:
            continue
        accepted += 1
        assert artefact == encoder.encode(data).data, data
        assert deserialize(artefact).keys() == deserialize(data).keys()
    assert 0 < accepted < CASES // 2


def test_the_reference_library_refuses() -> None:
    with pytest.raises(safetensors.SafetensorError):
        deserialize(caches.tiny()[:-1])
