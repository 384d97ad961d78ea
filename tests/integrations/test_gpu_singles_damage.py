# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Damaged payloads that are decoded one by one: kvcompress.gpu refuses what kv-compress refuses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from gpu_decoding import (
    GOLDEN,
    RefusedError,
    Restore,
    Tensors,
    assert_same,
    language_patched_once,
    restore,
)

from kvcompress import Client, payload
from kvcompress.gpu import Decoder
from kvcompress.payload import PayloadError
from oracle.encoder import seal

__all__ = ["language_patched_once", "restore"]
pytestmark = pytest.mark.slow
PROFILE = (GOLDEN / "tiny.profile").read_bytes()
NAME = "layer_0_key"


def sealed(good: bytes, damaged: bytes) -> bytes:
    """Makes the digests of a damaged artefact of one tensor right again."""
    entry = payload.read_header(good).tensors[0]
    digest = xxhash.xxh3_128_hexdigest(damaged[entry.begin : entry.end])
    header = damaged[: entry.begin].replace(entry.digest.encode(), digest.encode())
    return seal(header) + damaged[entry.begin :]


def decoded(artefact: bytes, codec: str) -> Tensors | None:
    """What the device decodes; None where it refuses, naming tensor and codec."""
    try:
        return Decoder(device="cpu").decode(artefact).tensors
    except PayloadError as error:
        message = str(error)
        # That of the reader of headers is of all codecs.
        told = codec.partition(":")[0] in message or "the payload has another size" in message
        named = (error.code, error.tensor, told)
    assert named == ("DATA_LOSS", NAME, True)
    return None


def restored(restore: Restore, artefact: bytes) -> Tensors | None:
    """What kv-compress restores; None where it refuses."""
    try:
        return restore(artefact, PROFILE)
    except RefusedError as error:
        message = str(error)
    assert f'tensor "{NAME}"' in message
    return None


def source(dtype: type[Any]) -> dict[str, npt.NDArray[Any]]:
    """Keys with outliers, which are exceptions, and an odd number of elements."""
    values = np.random.default_rng(8).standard_normal((1, 1, 17, 9))
    values[0, 0, 5, 2] = values[0, 0, 9, 3] = 700
    return {NAME: values.astype(dtype)}


# Bytes that are looked at most: scales, headers of blocks, models, and the last byte.
PLACES = {
    "int4:32": [1, 3, 5, -1],
    "int8:32": [1, 3, 9],
    "lossless": [*range(0, 20, 3), -1],
    "ecsq:contract": [*range(2, 12), *range(12, 44, 2), -1],
    "ecsq:0.05,8": [1, 2, 8, 12, 16, 28, 40, -1],
}


@pytest.mark.parametrize("codec", PLACES)
def test_changed_bytes_are_refused_where_the_cpu_refuses_them(
    client: Client, restore: Restore, codec: str
) -> None:
    """With digests made right again: both refuse, or both give the same."""
    good = client.compress(source(np.float16), codec=codec).artefact or b""
    entry = payload.read_header(good).tensors[0]
    rng = np.random.default_rng(9)
    size = entry.end - entry.begin
    places = PLACES[codec] + [int(each) for each in rng.integers(0, size, 10)]
    refused = 0
    for place in places:
        damaged = bytearray(good)
        damaged[entry.begin + place % size] ^= 1 << int(rng.integers(8)) | 0x80 * (place < 6)
        artefact = sealed(good, bytes(damaged))
        expected, found = restored(restore, artefact), decoded(artefact, codec)
        refused += found is None
        assert (found is None) == (expected is None), place
        if found is not None and expected is not None:
            assert_same(found, expected)
    assert refused > 0


@pytest.mark.parametrize("codec", ["ecsq:contract", "lossless"])
def test_no_memory_is_taken_for_shapes_that_payloads_are_too_small_for(
    client: Client, restore: Restore, codec: str
) -> None:
    good = client.compress(source(np.float16), codec=codec).artefact or b""
    begin = 8 + int.from_bytes(good[:8], "little")
    text = good[8:begin].rstrip().replace(b" 1x1x17x9 ", b" 90x99x999x999 ")
    text = text.ljust(len(text) + -len(text) % 8)
    artefact = seal(len(text).to_bytes(8, "little") + text) + good[begin:]
    assert restored(restore, artefact) is None
    with pytest.raises(PayloadError, match="too few for 8892188910 elements"):
        Decoder(device="cpu").decode(artefact)


@pytest.mark.parametrize("codec", ["ecsq:contract", "lossless"])
def test_payloads_that_end_early_or_late(client: Client, restore: Restore, codec: str) -> None:
    """Where the codec does not fix the size; where it does, the header is refused."""
    good = client.compress(source(np.float32), codec=codec).artefact or b""
    entry = payload.read_header(good).tensors[0]
    size = entry.end - entry.begin
    for change in (-size + 1, -40, -1, 1):
        artefact = good[:change] if change < 0 else good + b"\0"
        for old in (f"[{size}]", f"[0,{size}]"):
            new = old.replace(str(size), str(size + change))
            header = artefact[: entry.begin].replace(old.encode(), new.encode())
            # The padding makes up for digits.
            header = header[: entry.begin] + b" " * (entry.begin - len(header))
            artefact = header + artefact[entry.begin :]
        resealed = artefact[: entry.begin].replace(
            entry.digest.encode(), xxhash.xxh3_128_hexdigest(artefact[entry.begin :]).encode()
        )
        artefact = seal(resealed) + artefact[entry.begin :]
        assert restored(restore, artefact) is None
        assert decoded(artefact, codec) is None
