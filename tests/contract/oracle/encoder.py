# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The encoder of FORMAT.md, version 1, in NumPy: slow, plain, and independent of the C++."""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xxhash

from oracle import kivi, layouts, lossless, sparse
from oracle.source import F32, F64, NUMBERS, Tensor, exact, read, round_to, write

BLOCK = 4096
# Bits of a code, and whether values are rotated first.
CODECS = {"int4": (4, False), "int8": (8, False), "int4-hadamard": (4, True)}
ZEROS = "0" * 32


class RefusedError(ValueError):
    """Values that the codec cannot hold.

    Attributes:
        tensor: Name of the tensor.
        element: Index of the first such element, or None for a scale that is not finite.
    """

    def __init__(self, tensor: str, element: int | None) -> None:
        """Keeps the place."""
        super().__init__(f"{tensor}: {element}")
        self.tensor = tensor
        self.element = element


@dataclass(frozen=True)
class EncodedTensor:
    """A tensor and what became of it.

    Attributes:
        source: The tensor.
        payload: Its payload.
        decoded: The elements that decoding yields, as stored.
        entry: Its entry in the manifest.
    """

    source: Tensor
    payload: bytes
    decoded: bytes
    entry: str

    @property
    def digest(self) -> str:
        """Digest of the payload, 32 hexadecimal digits."""
        return xxhash.xxh3_128_hexdigest(self.payload)

    @property
    def exact(self) -> F64:
        """The flattened decoded values; of types that are no numbers none."""
        return exact(self.source.dtype, self.decoded)


@dataclass(frozen=True)
class Artefact:
    """An artefact and what it decodes to.

    Attributes:
        data: The whole file.
        restored: The safetensors file that decompression produces.
        tensors: Its tensors, in order.
        header_size: Bytes before the first payload.
    """

    data: bytes
    restored: bytes
    tensors: tuple[EncodedTensor, ...]
    header_size: int

    @property
    def checksum(self) -> str:
        """`xxh3-128:` and 32 digits."""
        return self.data[8:].split(b'"', 6)[5].decode()


def encode(
    file: bytes,
    group: int | None = 64,
    labels: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
    codec: str = "int4",
    sparsity: str = "0.5",
) -> Artefact:
    """Compresses a safetensors file.

    Args:
        file: The file. With the metadata key `layout`, its tensors are in that one of LAYOUTS,
            and the codec has groups.
        group: Elements that share a scale; None for a codec without groups.
        labels: Labels to bind.
        roles: The manifest's role field, by tensor name, where it is not that of the name.
        codec: Name of the codec: one of CODECS, `int4-kivi`, `sparse` or `lossless`, which also
            has the tensors that are no numbers.
        sparsity: Of `sparse`, in its one form.

    Raises:
        RefusedError: A value is not finite, or a scale would not be.
    """
    sources, metadata = read(file)
    tensors, largest = [], []
    for source in sources:
        if "layout" in metadata and group is not None and source.dtype in NUMBERS:
            encoded = _encode_views(source, metadata["layout"], group, codec, sparsity)
            bound = len(encoded.payload)
        else:
            role = (roles or {}).get(source.name, role_of(source.name))
            encoded, bound = _encode_whole(source, group, codec, role, sparsity)
        tensors.append(encoded)
        largest.append(bound)
    data = assemble(
        [(each.source.name, each.payload) for each in tensors],
        {
            "kvcompress.checksum": f"xxh3-128:{ZEROS}",
            "kvcompress.format": "1",
            "kvcompress.layout": "bhtd",
            "kvcompress.tensors": ";".join(each.entry for each in tensors),
            **{f"kvcompress.label.{key}": value for key, value in sorted((labels or {}).items())},
            **metadata,
        },
        largest,
    )
    restored = write(
        [
            Tensor(each.source.name, each.source.dtype, each.source.shape, each.decoded)
            for each in tensors
        ],
        metadata,
    )
    header_size = len(data) - sum(len(each.payload) for each in tensors)
    return Artefact(data, restored, tuple(tensors), header_size)


def _encode_whole(
    source: Tensor, group: int | None, codec: str, role: str, sparsity: str
) -> tuple[EncodedTensor, int]:
    """Encodes a tensor as it is; returns the size bound of its payload with it."""
    field = codec_field(codec, group, sparsity)
    if group is None or source.dtype not in NUMBERS:
        payload, decoded, field = lossless.encode_tensor(source), source.data, "lossless"
        bound = lossless.largest(source)
    else:
        payload, decoded = encode_tensor(source, group, codec, role, sparsity)
        bound = len(payload)
    shape = "x".join(map(str, source.shape)) or "-"
    digest = xxhash.xxh3_128_hexdigest(payload)
    entry = f"{field} {source.dtype} {shape} {role} {digest}"
    return EncodedTensor(source, payload, decoded, entry), bound


def _encode_views(
    source: Tensor, layout: str, group: int, codec: str, sparsity: str
) -> EncodedTensor:
    """Encodes the views of a tensor in a layout."""
    views, where = layouts.split(source, layout)
    shape = "x".join(map(str, source.shape))
    entry = f"@{layouts.LAYOUTS[layout].text} {source.dtype} {shape}"
    field, payloads, parts = codec_field(codec, group, sparsity), [], []
    for role, view in views:
        payload, decoded = encode_tensor(view, group, codec, role, sparsity)
        payloads.append(payload)
        parts.append(decoded)
        entry += f" {field} {role} {len(payload)} {xxhash.xxh3_128_hexdigest(payload)}"
    decoded = layouts.join(source, parts, where)
    return EncodedTensor(source, b"".join(payloads), decoded, entry)


def assemble(
    payloads: list[tuple[str, bytes]],
    metadata: Mapping[str, str],
    largest: list[int] | None = None,
) -> bytes:
    """Makes a file from payloads and metadata, and puts the right checksum in.

    Args:
        payloads: Names and payloads, in order.
        metadata: All of `__metadata__`, with zeros for the checksum's digits. Metadata that
            breaks the format makes an artefact whose checksum is right all the same.
        largest: Size bounds of the payloads; None where every size is its bound.
    """
    names, sizes = [name for name, _ in payloads], [len(data) for _, data in payloads]
    text = header_text(names, sizes, metadata)
    length = len(text if largest is None else header_text(names, largest, metadata))
    text = text.ljust(length + -(8 + length) % 8)
    return seal(struct.pack("<Q", len(text)) + text) + b"".join(data for _, data in payloads)


def header_text(names: list[str], sizes: list[int], metadata: Mapping[str, str]) -> bytes:
    """Returns the JSON of a header."""
    header: dict[str, object] = {"__metadata__": metadata}
    position = 0
    for name, size in zip(names, sizes, strict=True):
        header[name] = {
            "dtype": "U8",
            "shape": [size],
            "data_offsets": [position, position + size],
        }
        position += size
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()


def seal(header: bytes) -> bytes:
    """Computes the checksum of a header, length field included, over what it has there."""
    zeroed = re.sub(rb"xxh3-128:[0-9a-f]{32}", f"xxh3-128:{ZEROS}".encode(), header, count=1)
    digest = xxhash.xxh3_128_hexdigest(zeroed)
    return zeroed.replace(ZEROS.encode(), digest.encode(), 1)


def role_of(name: str) -> str:
    """Returns the manifest's role field for a tensor's name."""
    layer = "(?P<layer>0|[1-9][0-9]{0,8})"
    found = []
    for path, form in (
        (False, rf"layer_{layer}_(?P<role>key|value)"),
        (True, rf"(past_key_values|present)\.{layer}\.(?P<role>key|value)"),
        (True, rf"(?P<role>key|value)_cache[._]{layer}"),
        (True, rf"layers\.{layer}\.(?P<role>key|value)s"),
        (True, rf"(layers|h)\.{layer}\..*\.(?P<role>k|v|key|value)_cache"),
        (True, rf"(?P<role>k|v)_buffer\.{layer}"),
        (False, rf"cache_(?P<role>k|v)_l{layer}"),
        (False, rf"layer_{layer}_(?P<role>keys|values|k|v|K|V)"),
        (False, rf"layer{layer}_(?P<role>key|value)"),
        (True, rf"layer\.{layer}\.(?P<role>key|value)"),
        (True, rf"(past|present)_(?P<role>key|value)_{layer}"),
        (True, rf"(past|present|past_key_values|present_key_values)_{layer}_(?P<role>key|value)"),
        (True, rf"present_key_values\.{layer}\.(?P<role>key|value)"),
        (True, rf"(past_key_values|present)\.{layer}\.(de|en)coder\.(?P<role>key|value)"),
        (True, rf"(?P<role>k|v)_cache_{layer}"),
        (True, rf"layers\.{layer}\.(?P<role>k|v|key|value)_cache"),
        (False, rf"(?P<role>key|value|k|v|K|V)_{layer}"),
        (True, rf"kv\.{layer}\.(?P<role>k|v|key|value|keys|values)"),
    ):
        ends = [match.end() for match in re.finditer(r"\.", name)] if path else []
        matches = [re.fullmatch(form, name[begin:], re.DOTALL) for begin in (0, *ends)]
        found += [match["role"][0].lower() + match["layer"] for match in matches if match]
    return found[0] if len(found) == 1 else "-"


def codec_field(codec: str, group: int | None, sparsity: str = "0.5") -> str:
    """Returns a codec with its parameters, as in a manifest."""
    if group is None:
        return codec
    return f"sparse:{sparsity},{group}" if codec == "sparse" else f"{codec}:{group}"


def encode_tensor(
    source: Tensor, group: int, codec: str = "int4", role: str = "-", sparsity: str = "0.5"
) -> tuple[bytes, bytes]:
    """Encodes one tensor of a codec with groups.

    Returns:
        The payload, and the decoded elements as stored.

    Raises:
        RefusedError: A value is not finite, or a scale would not be.
    """
    values = source.values
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise RefusedError(source.name, int(bad[0]))
    if codec not in CODECS:
        if codec == "int4-kivi":
            units = kivi.encode(source, group, role[0])
            if units is not None:
                return units
        elif (kept := sparse.encode(values, sparsity, group)) is not None:
            return kept[0], round_to(source.dtype, kept[1])
        raise RefusedError(source.name, None)
    bits, rotated = CODECS[codec]
    width = rotation_width(source.shape) if rotated else 1
    values = hadamard(values * signs(width, values.size), width)
    payload, decoded = b"", [np.zeros(0, np.float32)]
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        scales, codes = b"", b""
        for first in range(0, block.size, group):
            scale, q = quantize(block[first : first + group], bits)
            if not np.isfinite(scale):
                raise RefusedError(source.name, None)
            scales += scale.tobytes()
            codes += pack(q, bits)
            decoded.append(q.astype(np.float32) * np.float32(scale))
        payload += scales + codes
    back = hadamard(np.concatenate(decoded), width) * signs(width, values.size)
    return payload, round_to(source.dtype, back)


def rotation_width(shape: tuple[int, ...]) -> int:
    """Returns the width of a tensor's rotation; 1 is none."""
    last = shape[-1] if shape else 1
    return max(width for width in (1, 2, 4, 8, 16, 32, 64, 128, 256) if last % width == 0)


def signs(width: int, count: int) -> F32:
    """Returns the signs of `count` elements in runs of `width`; a width of 1 has none."""
    if width == 1:
        return np.ones(count, np.float32)
    run = [-1 if (i + 1) * 0x9E3779B97F4A7C15 % 2**64 >= 2**63 else 1 for i in range(width)]
    return np.resize(np.array(run, np.float32), count)


def hadamard(values: F32, width: int) -> F32:
    """Multiplies runs by the Hadamard matrix over the root of the width, step by step."""
    if width == 1:
        return values
    v = values.reshape(-1, width).copy()
    h = 1
    while h < width:
        for i in range(0, width, 2 * h):
            low, high = v[:, i : i + h].copy(), v[:, i + h : i + 2 * h].copy()
            v[:, i : i + h], v[:, i + h : i + 2 * h] = low + high, low - high
        h *= 2
    return (v * np.float32(1 / np.sqrt(width))).ravel()


def quantize(
    x: F32, bits: int = 4
) -> tuple[np.float16, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Returns the scale and the codes of one group."""
    most = 2 ** (bits - 1) - 1
    with np.errstate(over="ignore"):
        scale = np.float16(np.float32(np.abs(x).max() / np.float32(most)))
    if scale == 0 or not np.isfinite(scale):
        return scale, np.zeros(x.size, np.int64)
    ratio = (x / np.float32(scale)).astype(np.float64)
    q = np.copysign(np.floor(np.abs(ratio) + 0.5), ratio)
    return scale, np.clip(q, -most - 1, most).astype(np.int64)


def pack(q: np.ndarray[tuple[int], np.dtype[np.int64]], bits: int = 4) -> bytes:
    """Packs the codes of one group; of 4 bits the first half low, the second half high."""
    if bits == 8:
        return q.astype(np.int8).tobytes()
    half = (q.size + 1) // 2
    nibbles = [int(code) & 15 for code in q] + [0] * (q.size % 2)
    return bytes(nibbles[i] | nibbles[i + half] << 4 for i in range(half))
