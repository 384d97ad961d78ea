# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which blocks of LZ4 and frames of Zstandard are read does not depend on a library's version.

Each fault is in a payload whose digests are right, so that only the rules of FORMAT.md find it.
"""

import importlib
import struct

import numpy as np
import pytest
import xxhash
import zstandard

from kvcompress import Client, DataLossError, payload
from oracle import encoder
from oracle.frames import (
    MAGIC,
    SIZE,
    bits,
    block,
    four,
    frame,
    header,
    huffman,
    raw,
    sequences,
    zeros,
)
from oracle.frames import (
    lz4 as sequence,
)
from oracle.source import read, tensor, write

# Not where the types are checked.
lz4_block = importlib.import_module("lz4.block")

# Of int8:64 these are SIZE bytes: 7 scales and 386 codes.
ELEMENTS = 386
SOURCE = write([tensor("t", "F16", np.zeros(ELEMENTS), (ELEMENTS,))])
# A literal, a match at offset 1 of length 3, and three literals.
MATCH = raw(bytes(4)) + sequences(bits((0, 2)))
# A table of one symbol, 0, of an accuracy of 5 bits.
FSE_ONE = b"\xf0\x03"


def first(*blocks: bytes, size: int) -> bytes:
    """A frame that begins with these blocks, of `size` bytes of content, and goes on with zeros."""
    return frame(*blocks, zeros(SIZE - size, last=True))


def artefact(stage: str, form: bytes, size: int = SIZE) -> bytes:
    """An artefact of SOURCE whose one chunk has this compressed form."""
    chunk = struct.pack("<II", size, len(form)) + form
    chunk += bytes(max(0, -(-size // 4) - len(form)))
    sources, _ = read(SOURCE)
    digest = encoder.EncodedTensor(sources[0], chunk, b"", "").digest
    return encoder.assemble(
        [("t", chunk)],
        {
            "kvcompress.checksum": f"xxh3-128:{encoder.ZEROS}",
            "kvcompress.format": "1",
            "kvcompress.layout": "bhtd",
            "kvcompress.tensors": f"int8+{stage}:64 F16 {ELEMENTS} - {digest}",
        },
        [SIZE + 8],
    )


CHECKSUM = xxhash.xxh64_digest(bytes(SIZE))[:-5:-1]

GOOD_FRAMES = {
    "zeros": frame(zeros(SIZE, last=True)),
    "raw": first(block(bytes(9), 0), size=9),
    "an empty raw block": first(block(b"", 0), size=0),
    "raw literals": first(block(raw(b"\0\0\0\0") + b"\0"), size=4),
    "a match": first(block(MATCH), size=7),
    "one stream": first(block(huffman(bits((0, 12)), 12) + b"\0"), size=12),
    "four streams": first(block(huffman(four(*[bits((0, 3))] * 4), 12, 1) + b"\0"), size=12),
    "treeless": first(
        block(huffman(bits((0, 12)), 12) + b"\0"),
        block(huffman(bits((0, 2)), 2, kind=3, tree=b"") + b"\0"),
        size=14,
    ),
    "a predefined table": first(
        block(bytes(4), 0),
        block(raw(b"") + sequences(bits((0, 6)), modes=0x14, tables=(0, 0))),
        size=7,
    ),
    "a described table": first(
        block(bytes(4), 0),
        block(raw(b"") + sequences(bits((0, 5)), modes=0x94, tables=(*FSE_ONE, 0, 0))),
        size=7,
    ),
    "repeated tables": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 2)))),
        block(raw(b"\0\0\0\0") + sequences(bits((0, 2)), modes=0xFC, tables=())),
        size=14,
    ),
    "a repeated offset": first(
        block(raw(b"\0\0\0\0") + sequences(bits(), tables=(1, 0, 0))), size=7
    ),
}

BAD_FRAMES = {
    "no frame": b"\0" * 20,
    "cut in the header": frame()[:5],
    "no block": frame(),
    "other magic number": b"\x27" + GOOD_FRAMES["zeros"][1:],
    "two frames": frame(zeros(SIZE, last=True)) + frame(zeros(0, last=True), size=0),
    "a skippable frame before": b"\x50\x2a\x4d\x18\0\0\0\0" + GOOD_FRAMES["zeros"],
    "a skippable frame after": GOOD_FRAMES["zeros"] + b"\x50\x2a\x4d\x18\0\0\0\0",
    "a byte after": GOOD_FRAMES["zeros"] + b"\0",
    "a window instead of a single segment": MAGIC
    + bytes([0x40, 0x38])
    + header()[1:]
    + zeros(SIZE, last=True),
    "no content size": MAGIC + b"\x00\x38" + zeros(SIZE, last=True),
    "a longer content size": MAGIC + b"\xa0" + struct.pack("<I", SIZE) + zeros(SIZE, last=True),
    "a checksum": MAGIC + b"\x64" + header()[1:] + zeros(SIZE, last=True) + CHECKSUM,
    "a dictionary ID of 0": MAGIC + b"\x61\0" + header()[1:] + zeros(SIZE, last=True),
    "the unused bit": MAGIC + b"\x70" + header()[1:] + zeros(SIZE, last=True),
    "the reserved bit": MAGIC + b"\x68" + header()[1:] + zeros(SIZE, last=True),
    "a smaller content size": frame(zeros(SIZE - 1, last=True), size=SIZE - 1),
    "a larger content size": frame(zeros(SIZE + 1, last=True), size=SIZE + 1),
    "less content": frame(zeros(SIZE - 1, last=True)),
    "more content": frame(zeros(SIZE + 1, last=True)),
    "no last block": frame(zeros(SIZE)),
    "a block after the last": frame(zeros(SIZE, last=True), block(b"", 0, last=True)),
    "the reserved block type": first(block(b"\0", 3, 4), size=4),
    "an empty RLE block": first(block(b"\0", 1, 0), size=0),
    "an empty compressed block": first(block(raw(b"") + b"\0"), size=0),
    "a compressed block of 0 bytes": first(block(b""), size=0),
    "a raw block that is cut off": frame(block(b"\0", 0, SIZE, last=True)),
    "more literals than content": first(block(b"\xfd\x7f\x02\0\0"), size=0),
    "no literals compressed": first(block(huffman(bits(), 0) + b"\0"), size=0),
    "treeless first": first(block(huffman(bits((0, 12)), 12, kind=3, tree=b"") + b"\0"), size=12),
    "four streams of 8 literals": first(
        block(huffman(four(*[bits((0, 2))] * 4), 8, 1) + b"\0"), size=8
    ),
    "a jump beyond the streams": first(
        block(huffman(b"\xff\xff" + four(*[bits((0, 3))] * 4)[2:], 12, 1) + b"\0"), size=12
    ),
    "a stream without an end mark": first(
        block(huffman(bits((0, 12)) + b"\0", 12) + b"\0"), size=12
    ),
    "a bit too few for literals": first(block(huffman(bits((0, 11)), 12) + b"\0"), size=12),
    "a bit too many for literals": first(block(huffman(bits((0, 13)), 12) + b"\0"), size=12),
    "streams of four that trade a bit": first(
        block(huffman(four(*(bits((0, 3 + i)) for i in (1, -1, 0, 0))), 12, 1) + b"\0"), size=12
    ),
    "incomplete codes": first(
        block(huffman(bits((0, 12)), 12, tree=b"\x83\x21\x11") + b"\0"), size=12
    ),
    "codes of 12 bits": first(
        block(huffman(bits((0, 24)), 12, tree=b"\x8b\x11\x23\x45\x67\x89\xab") + b"\0"), size=12
    ),
    "no symbol with the longest code": first(
        block(huffman(bits((0, 12)), 12, tree=b"\x80\x20") + b"\0"), size=12
    ),
    "no weights": first(block(huffman(bits((0, 12)), 12, tree=b"\x80\x00") + b"\0"), size=12),
    "padding of weights": first(
        block(huffman(bits((0, 12)), 12, tree=b"\x80\x11") + b"\0"), size=12
    ),
    "weights that are cut off": first(block(huffman(b"", 12, tree=b"\xff\x11") + b"\0"), size=12),
    "compressed weights that never end": first(
        block(huffman(bits((0, 12)), 12, tree=b"\x04\xf0\x03\0\4") + b"\0"), size=12
    ),
    "sequences after none": first(block(raw(b"\0\0\0\0") + b"\0\0"), size=4),
    "two bytes for no sequences": first(block(raw(b"\0\0\0\0") + b"\x80\0"), size=4),
    "two bytes for one sequence": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 2)), count=b"\x80\1")), size=7
    ),
    "reserved bits of modes": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 2)), modes=0x55)), size=7
    ),
    "repeated table first": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 2)), modes=0xD4, tables=(2, 0))), size=7
    ),
    "unknown code of literals": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 2)), tables=(36, 2, 0))), size=7
    ),
    "unknown code of matches": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 2)), tables=(1, 2, 53))), size=7
    ),
    "unknown code of offsets": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 32)), tables=(1, 32, 0))), size=7
    ),
    "a table that is too accurate": first(
        block(bytes(4), 0),
        block(raw(b"") + sequences(bits((0, 10)), modes=0x94, tables=(0xF5, 3, 0, 0))),
        size=7,
    ),
    "padding of a table": first(
        block(bytes(4), 0),
        block(raw(b"") + sequences(bits((0, 5)), modes=0x94, tables=(0xF0, 0x83, 0, 0))),
        size=7,
    ),
    "a table of too many symbols": first(
        block(bytes(4), 0),
        block(
            raw(b"") + sequences(bits((0, 5)), modes=0x94, tables=(0x10, 0xFE, *b"\xff" * 8, 0, 0))
        ),
        size=7,
    ),
    "no end mark of sequences": first(block(raw(b"\0\0\0\0") + sequences(b"\0")), size=7),
    "no stream of sequences": first(block(raw(b"\0\0\0\0") + sequences(b"")), size=7),
    "a bit too few for sequences": first(block(raw(b"\0\0\0\0") + sequences(bits((0, 1)))), size=7),
    "a bit too many for sequences": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 3)))), size=7
    ),
    "next states after the last sequence": first(
        block(bytes(4), 0),
        block(raw(b"") + sequences(bits((0, 6), (0, 4)), modes=0x14, tables=(0, 0))),
        size=7,
    ),
    "more literals than there are": first(
        block(raw(b"\0") + sequences(bits((0, 2)), tables=(2, 2, 0))), size=5
    ),
    "a repeated offset of 0": first(
        block(raw(b"\0\0\0\0") + b"\0"),
        block(raw(b"") + sequences(bits((1, 1)), tables=(0, 1, 0))),
        size=7,
    ),
    "an offset before the content": first(
        block(raw(b"\0\0\0\0") + sequences(bits((1, 2)))), size=7
    ),
    "a repeated offset before the content": first(
        block(raw(b"\0\0\0\0") + sequences(bits((0, 1)), tables=(1, 1, 0))), size=7
    ),
    "a match beyond the content": frame(zeros(SIZE - 6), block(MATCH, last=True)),
}

REST = sequence(bytes(7))
GOOD_BLOCKS = {
    "a match": sequence(b"\0", 1, SIZE - 8) + REST,
    "two matches": sequence(b"\0", 1, 100) + sequence(b"", 101, SIZE - 108) + REST,
    "a last match of 12 bytes before the end": sequence(b"\0", 1, SIZE - 13)
    + sequence(b"", 1, 7)
    + sequence(bytes(5)),
}
BAD_BLOCKS = {
    "no distance": sequence(b"\0", 0, SIZE - 8) + REST,
    "a distance before the content": sequence(b"\0", 2, SIZE - 8) + REST,
    "four last literals": sequence(b"\0", 1, SIZE - 5) + sequence(bytes(4)),
    "no last literals": sequence(b"\0", 1, SIZE - 1),
    "an empty last sequence": sequence(b"\0", 1, SIZE - 1) + b"\0",
    "a match in the last 12 bytes": sequence(b"\0", 1, SIZE - 12)
    + sequence(b"", 1, 6)
    + sequence(bytes(5)),
    "a match length in the last token": sequence(b"\0", 1, SIZE - 8)
    + bytes([REST[0] | 1])
    + REST[1:],
    "less content": sequence(b"\0", 1, SIZE - 9) + REST,
    "more content": sequence(b"\0", 1, SIZE - 7) + REST,
    "a byte after": sequence(b"\0", 1, SIZE - 8) + REST + b"\0",
    "literals that are cut off": sequence(b"\0", 1, SIZE - 8) + REST[:-1],
    "a distance that is cut off": sequence(b"\0", 1, 4)[:-1],
    "a length that is cut off": sequence(b"\0", 1, SIZE - 8)[:-1],
    "a length without an end": b"\xf0" + b"\xff" * 30,
    "a match after no literals": sequence(b"", 1, SIZE - 7) + REST,
}


def cases(frames: dict[str, bytes], blocks: dict[str, bytes]) -> list[object]:
    """Parameters of a test: the stage, and the compressed form."""
    both = (("zstd", frames), ("lz4", blocks))
    return [
        pytest.param(stage, form, id=f"{stage}: {name}")
        for stage, forms in both
        for name, form in forms.items()
    ]


@pytest.mark.parametrize(("stage", "form"), cases(GOOD_FRAMES, GOOD_BLOCKS))
def test_what_keeps_the_rules_is_read(client: Client, stage: str, form: bytes) -> None:
    data = artefact(stage, form)
    assert not payload.read(data)["t"].any()
    assert client.decompress(data).safetensors == SOURCE


@pytest.mark.parametrize(("stage", "form"), cases(BAD_FRAMES, BAD_BLOCKS))
def test_what_breaks_a_rule_is_refused_alike(client: Client, stage: str, form: bytes) -> None:
    data = artefact(stage, form)
    with pytest.raises(payload.PayloadError) as offline:
        payload.read(data)
    assert (offline.value.code, offline.value.tensor) == ("DATA_LOSS", "t")
    with pytest.raises(DataLossError) as caught:
        client.decompress(data)
    assert (caught.value.reason, caught.value.tensor) == ("PAYLOAD_DAMAGED", "t")
    assert client.decompress(artefact("zstd", GOOD_FRAMES["a match"])).safetensors == SOURCE


@pytest.mark.parametrize("level", [-5, 1, 3, 9, 15, 19, 22])
def test_every_level_of_a_library_keeps_the_rules(client: Client, level: int) -> None:
    """Frames of the version of Python's package, which is not the service's."""
    rng = np.random.default_rng(level + 5)
    for content in (
        bytes(SIZE),
        bytes(100) + rng.integers(0, 4, 200, np.uint8).tobytes() + bytes(100),
        b"".join([bytes(14), *[rng.bytes(9) * 4] * 10, bytes(26)]),
    ):
        form = zstandard.ZstdCompressor(level=level).compress(content)
        data = artefact("zstd", form)
        assert client.decompress(data).safetensors == restored(data)
        block_form = lz4_block.compress(content, mode="high_compression", store_size=False)
        data = artefact("lz4", block_form)
        assert client.decompress(data).safetensors == restored(data)


def restored(data: bytes) -> bytes:
    """What the offline reader makes of an artefact."""
    return write([tensor("t", "F16", payload.read(data)["t"].astype(np.float32), (ELEMENTS,))])
