# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A flipped bit anywhere, a cut, a mix-up: all are found, and the server serves on."""

import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from kvcompress import Client, DataLossError, UnimplementedError, payload
from oracle import caches, encoder
from oracle.server import Server, is_serving
from oracle.source import tensor, write

REASONS = ("HEADER_DAMAGED", "PAYLOAD_DAMAGED", "TRUNCATED", "TRAILING_BYTES")
TINY = encoder.encode(caches.tiny(), 32, {"tenant": "a"})
TWO_LABELS = encoder.encode(caches.tiny(), 32, {"b": "", "c": ""}).data


@pytest.fixture(autouse=True)
def _serves_on(server: Server, client: Client) -> Iterator[None]:
    yield
    assert server.process.poll() is None
    assert is_serving(server.target)
    assert client.decompress(TINY.data).safetensors == TINY.restored


def refused(client: Client, data: bytes) -> DataLossError:
    """Decompresses damaged bytes; the service and kvcompress.payload must both find it."""
    with pytest.raises(payload.PayloadError) as offline:
        payload.read(data)
    assert offline.value.code == "DATA_LOSS"
    with pytest.raises(DataLossError) as caught:
        client.decompress(data)
    assert caught.value.reason in REASONS
    with pytest.raises(DataLossError):
        client.decompress(data, verify_only=True)
    return caught.value


@pytest.mark.timeout(600)
def test_every_flipped_bit(client: Client) -> None:
    assert client.decompress(TINY.data).safetensors == TINY.restored
    ends = np.cumsum([len(each.payload) for each in TINY.tensors]) + TINY.header_size
    for position in range(len(TINY.data)):
        for bit in range(8):
            damaged = bytearray(TINY.data)
            damaged[position] ^= 1 << bit
            with pytest.raises(DataLossError) as caught:
                client.decompress(bytes(damaged))
            with pytest.raises(payload.PayloadError) as offline:
                payload.read(bytes(damaged))
            assert offline.value.code == "DATA_LOSS", (position, bit)
            if position >= TINY.header_size:
                name = TINY.tensors[int(np.searchsorted(ends, position, "right"))].source.name
                assert caught.value.tensor == offline.value.tensor == name, (position, bit)
                assert caught.value.reason == "PAYLOAD_DAMAGED"


def test_every_truncation(client: Client) -> None:
    for length in range(len(TINY.data)):
        error = refused(client, TINY.data[:length])
        assert error.reason == "TRUNCATED", length


@pytest.mark.parametrize("more", [b"\0", b" ", b"more than a byte" * 1000])
def test_trailing_bytes(client: Client, more: bytes) -> None:
    assert refused(client, TINY.data + more).reason == "TRAILING_BYTES"


def test_garbage(client: Client) -> None:
    rng = np.random.default_rng(0)
    for length in (0, 1, 8, 9, 1000, 100_000):
        refused(client, rng.bytes(length))
    refused(client, struct.pack("<Q", 1 << 40) + b"{" * 1000)
    refused(client, struct.pack("<Q", 50_000) + b"[" * 50_000)


def pair() -> tuple[encoder.Artefact, encoder.Artefact]:
    """Two artefacts of the same shapes."""
    rng = np.random.default_rng(3)
    shape, names = (1, 2, 70, 64), ("layer_0_key", "layer_0_value", "layer_1_key")
    first, second = (
        encoder.encode(
            write([tensor(name, "BF16", rng.standard_normal(shape)) for name in names]),
            labels={"tenant": tenant},
        )
        for tenant in "ab"
    )
    assert first.header_size == second.header_size
    assert len(first.data) == len(second.data)
    return first, second


@pytest.mark.parametrize("index", [0, 1, 2])
def test_payload_of_another_artefact(client: Client, index: int) -> None:
    first, second = pair()
    size = len(first.tensors[0].payload)
    begin = first.header_size + index * size
    mixed = first.data[:begin] + second.data[begin : begin + size] + first.data[begin + size :]
    error = refused(client, mixed)
    assert error.tensor == first.tensors[index].source.name
    assert error.reason == "PAYLOAD_DAMAGED"


def test_payloads_of_two_tensors_swapped(client: Client) -> None:
    first, _ = pair()
    head, one, two, three = first.data[: first.header_size], *(t.payload for t in first.tensors)
    assert refused(client, head + two + one + three).tensor == "layer_0_key"
    assert refused(client, head + one + three + two).tensor == "layer_0_value"


def test_header_of_another_artefact(client: Client) -> None:
    first, second = pair()
    mixed = first.data[: first.header_size] + second.data[first.header_size :]
    assert refused(client, mixed).tensor == "layer_0_key"


def test_expected_identity(client: Client) -> None:
    labels = {"tenant": "a"}
    assert client.decompress(TINY.data, expected_labels=labels).report.labels == labels
    assert client.decompress(TINY.data, expected_payload_digest=TINY.checksum).safetensors
    wrong: list[dict[str, str]] = [{"tenant": "b"}, {"tenant": ""}, {"other": "a"}]
    wrong.append({"tenant": "a", "model": ""})
    for expected in wrong:
        with pytest.raises(DataLossError) as caught:
            client.decompress(TINY.data, expected_labels=expected)
        assert caught.value.reason == "IDENTITY_MISMATCH"
    other = "xxh3-128:" + "0" * 32
    with pytest.raises(DataLossError) as caught:
        client.decompress(TINY.data, expected_payload_digest=other)
    assert caught.value.reason == "IDENTITY_MISMATCH"


def rewritten(pattern: bytes, replacement: bytes, data: bytes = TINY.data) -> bytes:
    """Changes the header and sets the right checksum; its length may change too."""
    length = struct.unpack("<Q", data[:8])[0]
    text, body = data[8 : 8 + length].rstrip(b" "), data[8 + length :]
    changed, count = re.subn(pattern, lambda _: replacement, text, count=1)
    assert count == 1
    changed += b" " * (-(8 + len(changed)) % 8)
    return encoder.seal(struct.pack("<Q", len(changed)) + changed) + body


BROKEN_RULES = {
    "unknown key of the format": (
        rb'"kvcompress.format"',
        b'"kvcompress.more":"1","kvcompress.format"',
    ),
    "key of the format missing": (rb'"kvcompress.layout":"bhtd",', b""),
    "keys out of order": (
        rb'"kvcompress.format":"1","kvcompress.layout":"bhtd"',
        b'"kvcompress.layout":"bhtd","kvcompress.format":"1"',
    ),
    "other layout": (rb'"bhtd"', b'"thbd"'),
    "version 0": (rb'"kvcompress.format":"1"', b'"kvcompress.format":"0"'),
    "version not decimal": (rb'"kvcompress.format":"1"', b'"kvcompress.format":"01"'),
    "label not allowed": (rb"kvcompress\.label\.tenant", b"kvcompress.label.Tenant"),
    "manifest too short": (rb';int4[^"]*', b""),
    "manifest too long": (
        rb'","kvcompress.label',
        b";int4:32 F16 0 - " + b"0" * 32 + b'","kvcompress.label',
    ),
    "text after the checksum": (rb'","kvcompress.format"', b'more","kvcompress.format"'),
    "text after the manifest": (rb'","kvcompress.label', b';","kvcompress.label'),
    "other dtype": (rb"int4:32 F16", b"int4:32 I16"),
    "other shape": (rb"F16 3 ", b"F16 33 "),
    "shape with a leading zero": (rb"F16 3 ", b"F16 03 "),
    "other role": (rb" k0 ", b" q0 "),
    "layer with a leading zero": (rb" k0 ", b" k00 "),
    "two spaces": (rb"int4:32 F16", b"int4:32  F16"),
    "digest in capitals": (rb"k0 [0-9a-f]{32}", b"k0 " + b"ABCDEF01" * 4),
    "not U8": (rb'"dtype":"U8"', b'"dtype":"I8"'),
    "two dimensions": (rb'"shape":\[4\]', b'"shape":[2,2]'),
    "gap": (rb'"data_offsets":\[4,8\]', b'"data_offsets":[5,9]'),
    "field too many": (rb'"dtype":"U8"', b'"dtype":"U8","more":1'),
    "not JSON": (rb"\}\}$", b"}"),
    "key twice": (rb'"kvcompress.layout":"bhtd",', b'"kvcompress.layout":"bhtd",' * 2),
}


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_broken_rule_under_a_right_checksum(client: Client, name: str) -> None:
    refused(client, rewritten(*BROKEN_RULES[name]))


@pytest.mark.parametrize("codec", [b"int9:32", b"int4:33", b"int4", b"later"])
def test_unknown_codec_under_a_right_checksum(client: Client, codec: bytes) -> None:
    data = rewritten(rb"int4:32 F16", codec + b" F16")
    with pytest.raises(UnimplementedError) as caught:
        client.decompress(data)
    assert caught.value.tensor == "layer_0_key"
    with pytest.raises(payload.PayloadError) as offline:
        payload.read(data)
    assert (offline.value.code, offline.value.tensor) == ("UNIMPLEMENTED", "layer_0_key")


def padded(padding: bytes) -> bytes:
    """Returns TINY with other bytes after its header's text, and the right checksum."""
    text = TINY.data[8 : TINY.header_size].rstrip(b" ") + padding
    return encoder.seal(struct.pack("<Q", len(text)) + text) + TINY.data[TINY.header_size :]


@pytest.mark.parametrize("padding", ["\n", "\t", " \0", "x"])
def test_padding_other_than_spaces(client: Client, padding: str) -> None:
    length = TINY.header_size - 8
    text = TINY.data[8 : TINY.header_size].rstrip(b" ")
    refused(client, padded(padding.rjust(length - len(text) + 8).encode()))


def test_header_of_a_length_that_is_no_multiple_of_8(client: Client) -> None:
    text = TINY.data[8 : TINY.header_size].rstrip(b" ")
    refused(client, padded(b" " * ((1 - len(text)) % 8)))


def test_labels_out_of_order(client: Client) -> None:
    refused(client, rewritten(rb"label\.b", b"label.d", TWO_LABELS))


def test_tensors_out_of_order(client: Client) -> None:
    text = TINY.data[8 : TINY.header_size].rstrip(b" ")
    first = text.index(b'"layer_0_key"')
    second = text.index(b'"layer_0_value"')
    swapped = text[second:-1] + b"," + text[first : second - 1] + b"}"
    refused(client, rewritten(re.escape(text[first:]), swapped))


def with_payload(change: bytes, at: int) -> bytes:
    """Changes the first payload of TINY, and makes every digest right again."""
    first = TINY.tensors[0]
    changed = first.payload[:at] + change + first.payload[at + len(change) :]
    digest = encoder.EncodedTensor(first.source, changed, b"", "").digest
    body = changed + TINY.data[TINY.header_size + len(changed) :]
    fixed = rewritten(first.digest.encode(), digest.encode())
    return fixed[: TINY.header_size] + body


@pytest.mark.parametrize(
    ("change", "at"),
    [
        (b"\x00\x80", 0),
        (b"\x00\xb8", 0),
        (b"\x00\x7c", 0),
        (b"\x00\x7e", 0),
        (b"\x10", 3),
        (b"\xf1", 3),
    ],
    ids=["-0 scale", "negative scale", "infinite scale", "NaN scale", "unused bit", "unused bits"],
)
def test_broken_codec_rule_under_right_digests(client: Client, change: bytes, at: int) -> None:
    error = refused(client, with_payload(change, at))
    assert error.tensor == "layer_0_key"
    assert error.reason == "PAYLOAD_DAMAGED"


def lz4_zeros(count: int) -> bytes:
    """An LZ4 block of 24 to 273 zeros: one, a match with it, and five to end with."""
    return b"\x1f\0\x01\0" + bytes([count - 25]) + b"\x50" + bytes(5)


@pytest.mark.parametrize("count", [66, 67, 200])
def test_a_chunk_that_holds_more_than_the_blocks(client: Client, count: int) -> None:
    """66 bytes are the block of the tensor; what a byte compressor adds to them is refused.

    A decoder once took the bytes after the last block for further blocks, without an end, and
    wrote beyond its memory.
    """
    block = lz4_zeros(count)
    body = block.ljust(-(-count // 4), b"\0")
    chunk = struct.pack("<II", count, len(block)) + body
    digest = encoder.EncodedTensor(tensor("t", "F16", np.zeros(64)), chunk, b"", "").digest
    metadata = {
        "kvcompress.checksum": f"xxh3-128:{encoder.ZEROS}",
        "kvcompress.format": "1",
        "kvcompress.layout": "bhtd",
        "kvcompress.tensors": f"int8+lz4:64 F16 64 - {digest}",
    }
    data = encoder.assemble([("t", chunk)], metadata, [66 + 8])
    if count == 66:
        assert client.decompress(data).safetensors is not None
    else:
        assert refused(client, data).reason == "PAYLOAD_DAMAGED"


def test_every_code_and_scale_0_are_read(client: Client) -> None:
    for change, at in ((b"\x88", 2), (b"\x00\x00", 0), (b"\xff\x7b", 0)):
        data = with_payload(change, at)
        want = payload.read(data)["layer_0_key"]
        arrays = client.decompress(data).tensors
        assert arrays is not None
        assert arrays["layer_0_key"].tobytes() == want.tobytes()


@pytest.mark.parametrize("version", [b"2", b"10", b"4294967296"])
def test_later_version(client: Client, version: bytes) -> None:
    later = rewritten(rb'"kvcompress.format":"1"', b'"kvcompress.format":"%s"' % version)
    with pytest.raises(UnimplementedError) as caught:
        client.decompress(later)
    assert caught.value.reason
    with pytest.raises(payload.PayloadError) as offline:
        payload.read(later)
    assert offline.value.code == "UNIMPLEMENTED"


def test_later_version_with_a_wrong_checksum(client: Client) -> None:
    later = TINY.data.replace(b'"kvcompress.format":"1"', b'"kvcompress.format":"2"')
    refused(client, later)


def test_later_version_with_rules_of_its_own(client: Client) -> None:
    later = rewritten(
        rb'"kvcompress.format":"1"', b'"kvcompress.format":"2","kvcompress.unheard-of":"x"'
    )
    with pytest.raises(UnimplementedError):
        client.decompress(later)
