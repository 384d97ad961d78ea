# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reads artefacts without the service: NumPy, xxhash and the standard library.

Written from core/FORMAT.md alone and independent of the rest of the package, so that this
folder is enough to get a cache back from an archive, and is a check on the C++ code. Each
codec has a module of its own. Section numbers below are those of FORMAT.md.
"""

import json
import mmap
import re
import struct
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import xxhash

from ._codec import Array, Codec, Entry, PayloadError
from ._dtypes import NUMBERS, SIZES
from ._ecsq import Ecsq
from ._grouped import Grouped
from ._kivi import Kivi
from ._klt import Klt
from ._last_stage import STAGES, LastStage
from ._layouts import MAX_VIEWS, Layout, LayoutError
from ._lossless import Lossless
from ._profiled import (
    NO_DIGEST,
    PROFILE_KEY,
    PROFILED,
    SAME_CODEC,
    Profiled,
    is_profiled,
    read_profile_id,
)
from ._sparse import Sparse

__all__ = [
    "CODECS",
    "Entry",
    "Header",
    "PayloadError",
    "payload_size",
    "read",
    "read_header",
    "verify_digest",
]

_BEGINNING = re.compile(rb'\{"__metadata__":\{"kvcompress\.checksum":"xxh3-128:([0-9a-f]{32})",')
_LABEL = re.compile(r"kvcompress\.label\.[a-z0-9_.-]{1,64}")
_DECIMAL = r"(?:0|[1-9][0-9]*)"
_TYPE = rf"({'|'.join(SIZES)}) (-|{_DECIMAL}(?:x{_DECIMAL})*)"
_ENTRY = re.compile(rf"([^ ]+) {_TYPE} ([kv-])({_DECIMAL}?) ([0-9a-f]{{32}}|-)")
_LAYOUT = re.compile(
    rf"@([^ ]+) {_TYPE}(( [^ ]+ [kv-]{_DECIMAL}? {_DECIMAL} (?:[0-9a-f]{{32}}|-))+)"
)
_VIEW = re.compile(rf" ([^ ]+) ([kv-])({_DECIMAL}?) ({_DECIMAL}) ([0-9a-f]{{32}}|-)")

CODECS: dict[str, Codec] = {
    "ecsq": Ecsq(),
    "int4": Grouped(4),
    "int4-hadamard": Grouped(4, rotated=True),
    "int4-kivi": Kivi(),
    "int8": Grouped(8),
    "klt": Klt(),
    "lossless": Lossless(),
    "sparse": Sparse(),
}
"""The codecs this reader knows, by name."""
CODECS |= {
    f"{name}+{stage}": LastStage(codec, stage) for name, codec in CODECS.items() for stage in STAGES
}
CODECS |= PROFILED

_Row = tuple[str, str, list[int], int, int]  # name, dtype, shape, begin, end


@dataclass(frozen=True)
class Header:
    """The header of an artefact, after every check of sections 1 to 3.

    Attributes:
        checksum: `xxh3-128:` and 32 hexadecimal digits: the artefact's identity.
        labels: Labels bound by the caller.
        metadata: The source's own metadata, in its order.
        tensors: The tensors, or the views of those in a layout, in the order of the payloads.
        profile: Digest and label of the profile that tensors need, or None.
    """

    checksum: str
    labels: dict[str, str]
    metadata: dict[str, str]
    tensors: tuple[Entry, ...]
    profile: tuple[str, str] | None = None


def read(source: bytes | str | PathLike[str]) -> dict[str, Array]:
    """Verifies an artefact and decodes every tensor.

    Args:
        source: The artefact's bytes, or its path.

    Returns:
        The arrays by name, in the order of the file, with the shapes and the types of the
        source. BF16 and the 8-bit floating-point types are those of ml_dtypes when that package
        is installed, else uint16 or uint8 holding the bit patterns; those of BF16 are the upper
        halves of float32 values, so that `(a.astype(np.uint32) << 16).view(np.float32)` gives
        them exactly.

    Raises:
        PayloadError: A check failed.
        OSError: The file cannot be read.
    """
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    tensors = {}
    for entry in read_header(data).tensors:
        payload = data[entry.begin : entry.end]
        verify_digest(payload, entry)
        values = CODECS[entry.codec.partition(":")[0]].decode(payload, entry)
        try:
            if entry.view is None:
                tensors[entry.name] = values.reshape(entry.shape)
                continue
            layout, index = entry.view
            if index == 0:
                tensors[layout.name] = np.empty(layout.shape, values.dtype)
            layout.place(tensors[layout.name], index, values)
        except ValueError as error:
            raise PayloadError(str(error), "UNIMPLEMENTED", entry.name) from None
    return tensors


def verify_digest(payload: bytes | memoryview, entry: Entry) -> None:
    """Compares a payload with the digest that the manifest has of it.

    Raises:
        PayloadError: They differ.
    """
    if entry.digest != NO_DIGEST and xxhash.xxh3_128_hexdigest(payload) != entry.digest:
        raise PayloadError("the payload does not match its digest", tensor=entry.name)


def payload_size(codec: str, shape: tuple[int, ...], dtype: str, role: str = "-") -> int:
    """Returns the size bound of a tensor's payload; the header comes on top.

    Args:
        codec: Codec and parameters, such as `int4:64`.
        shape: Dimensions of the tensor, empty for a scalar.
        dtype: The type, as safetensors names it, such as `BF16`.
        role: `k`, `v` or `-`, as in the manifest.

    Returns:
        Bytes: the exact size for codecs whose size follows from the shape, else the most.

    Examples:
        >>> payload_size("int4:64", (1, 8, 128, 64), "F16")
        34816

    Raises:
        ValueError: The codec or the dtype is not known, the codec does not take the dtype, or a
            dimension is negative.
    """
    found = _find(codec)
    if found is None:
        raise ValueError(f"unknown codec {codec!r}")
    if not _takes(codec, dtype) or any(dimension < 0 for dimension in shape):
        raise ValueError(f"not a tensor that can be compressed: {dtype} {shape}")
    return found.largest(codec.partition(":")[2], shape, dtype, role)


def read_header(data: bytes | mmap.mmap, size: int | None = None) -> Header:
    """Verifies and reads the header of an artefact, and that its payloads end with the file.

    Args:
        data: The whole artefact, or with `size` its front, with the whole header.
        size: Bytes of the whole artefact.

    Returns:
        The header. Digests of payloads have not been checked.

    Raises:
        PayloadError: A check failed.
    """
    size = len(data) if size is None else size
    if len(data) < 8 or 8 + (length := struct.unpack("<Q", data[:8])[0]) > len(data):
        raise PayloadError("the file ends within its header")
    raw, end = data[8 : 8 + length], 8 + length
    if (beginning := _BEGINNING.match(raw)) is None:
        _refuse_foreign(raw, size - end)
    digits = beginning[1].decode()
    before, after = raw[: beginning.start(1)], raw[beginning.end(1) :]
    if xxhash.xxh3_128_hexdigest(data[:8] + before + b"0" * 32 + after) != digits:
        raise PayloadError("the header does not match its checksum")
    metadata, tensors = _parse(raw)
    version = metadata.get("kvcompress.format", "")
    if re.fullmatch("[1-9][0-9]*", version) and version != "1":
        raise PayloadError(f"format version {version} is later than 1", "UNIMPLEMENTED")
    if _form(metadata, tensors) != raw.rstrip(b" "):
        raise PayloadError("the header is not in its one form")
    labels, own = _keys(metadata)
    if (version, metadata["kvcompress.layout"]) != ("1", "bhtd") or end % 8 != 0:
        raise PayloadError("the version, the layout or the header's length breaks a rule")
    manifest = metadata["kvcompress.tensors"].split(";") if tensors else []
    if ";".join(manifest) != metadata["kvcompress.tensors"] or len(manifest) != len(tensors):
        raise PayloadError("the manifest and the tensors differ in number")
    entries: list[Entry] = []
    position = end
    for text, (name, dtype, shape, begin, stop) in zip(manifest, tensors, strict=True):
        if (dtype, shape, end + begin) != ("U8", [stop - begin], position):
            raise PayloadError("not U8 of one dimension, or out of place", tensor=name)
        position = end + stop
        if text.startswith("@"):
            entries += _views(text, name, end + begin, position)
        else:
            entries.append(_entry(text, name, end + begin, position))
    if position != size:
        raise PayloadError("the payloads and the file do not end together")
    if len(entries) - len(tensors) > MAX_VIEWS:
        raise PayloadError("the layouts have too many views")
    profile = read_profile_id(metadata.get(PROFILE_KEY), entries)
    return Header(
        f"xxh3-128:{digits}",
        {key.removeprefix("kvcompress.label."): metadata[key] for key in labels},
        {key: metadata[key] for key in own},
        tuple(entries),
        profile,
    )


def _keys(metadata: dict[str, str]) -> tuple[list[str], list[str]]:
    """The keys of labels, and those of the source, where all keys are as they should be."""
    labels = [key for key in metadata if _LABEL.fullmatch(key)]
    own = [key for key in metadata if not key.startswith("kvcompress.")]
    fixed = [f"kvcompress.{key}" for key in ("checksum", "format", "layout", "tensors")]
    named = [PROFILE_KEY] if PROFILE_KEY in metadata else []
    if list(metadata) != fixed + named + sorted(labels) + own or len(labels) > 32:
        raise PayloadError("the metadata's keys break a rule")
    if any(len(metadata[key].encode()) > 1024 for key in labels):
        raise PayloadError("a label is too long")
    return labels, own


def _find(codec: str) -> Codec | None:
    """The codec of a manifest's codec field, if its name and parameters are known."""
    name, _, parameters = codec.partition(":")
    found = CODECS.get(name)
    canonical = f"{name}:{parameters}" if parameters else name
    return found if found and canonical == codec and found.accepts(parameters) else None


def _takes(codec: str, dtype: str) -> bool:
    """Whether a codec takes a type: most take numbers, and lossless whatever there is."""
    if (profiled := PROFILED.get(codec.partition(":")[0])) is not None:
        return dtype in profiled.dtypes
    return dtype in (SIZES if codec.partition("+")[0] == "lossless" else NUMBERS)


def _entry(text: str, name: str, begin: int, end: int) -> Entry:
    """Reads an entry of the manifest, for a payload at these positions of the file."""
    fields = _ENTRY.fullmatch(text)
    if fields is None:
        raise PayloadError("the manifest's entry breaks a rule", tensor=name)
    codec = _find(fields[1])
    if codec is None:
        raise PayloadError(f"unknown codec {fields[1]!r}", "UNIMPLEMENTED", name)
    shared = isinstance(codec, Profiled)
    if fields[6] == NO_DIGEST and not (shared and begin == end):
        raise PayloadError("the manifest's entry has no digest", tensor=name)
    if not _takes(fields[1], fields[2]):
        raise PayloadError(f"{fields[1]} does not take {fields[2]}", tensor=name)
    shape = _shape(fields[3])
    largest = payload_size(fields[1], shape, fields[2], fields[4])
    if not shared and (end - begin > largest or (codec.fixed and end - begin != largest)):
        raise PayloadError("the payload has another size than its shape asks for", tensor=name)
    layer = int(fields[5]) if fields[5] else None
    return Entry(name, fields[1], fields[2], shape, fields[4], layer, fields[6], begin, end)


def _shape(text: str) -> tuple[int, ...]:
    """Reads the shape of an entry."""
    return () if text == "-" else tuple(map(int, text.split("x")))


def _views(text: str, name: str, begin: int, end: int) -> list[Entry]:
    """Reads the entry of a tensor in a layout: an entry for each view."""
    fields = _LAYOUT.fullmatch(text)
    if fields is None:
        raise PayloadError("the manifest's entry breaks a rule", tensor=name)
    try:
        layout = Layout(name, fields[1], _shape(fields[3]))
    except LayoutError as error:
        code = "DATA_LOSS" if error.known else "UNIMPLEMENTED"
        raise PayloadError(str(error), code, name) from None
    views = _VIEW.findall(fields[4])
    if len(views) != len(layout.views):
        raise PayloadError("the layout has another number of views", tensor=name)
    entries: list[Entry] = []
    for index, (codec, role, layer, size, digest) in enumerate(views):
        if codec == SAME_CODEC and entries and is_profiled(entries[-1].codec):
            codec = entries[-1].codec
        elif entries and is_profiled(codec) and codec == entries[-1].codec:
            raise PayloadError("the codec of a view is written in another form", tensor=name)
        shape = "x".join(map(str, layout.views[index].shape))
        line = f"{codec} {fields[2]} {shape} {role}{layer} {digest}"
        entry = _entry(line, layout.views[index].name, begin, begin + int(size))
        entries.append(entry._replace(view=(layout, index)))
        begin = entry.end
    if begin != end:
        raise PayloadError("the views and the payload do not end together", tensor=name)
    return entries


def _parse(raw: bytes) -> tuple[dict[str, str], list[_Row]]:
    """Reads the JSON of a safetensors header: metadata, and name, dtype, shape, begin, end."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) != len(dict(pairs)):
            raise ValueError("a key appears twice")
        return dict(pairs)

    try:
        text = raw.rstrip(b" ").decode()
        if not (text.startswith("{") and text.endswith("}")):
            raise ValueError("it is not an object and spaces")
        header = json.loads(text, object_pairs_hook=unique)
        metadata, tensors = header.pop("__metadata__", {}), []
        for name, value in header.items():
            (begin, end), shape = value["data_offsets"], value["shape"]
            if value.keys() != {"dtype", "shape", "data_offsets"} or not all(
                type(number) is int and number >= 0 for number in (begin, end, *shape)
            ):
                raise ValueError("a tensor breaks a rule")
            tensors.append((name, str(value["dtype"]), shape, begin, end))
        "".join([*header, *metadata.keys(), *metadata.values()]).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PayloadError(f"the header is not that of a safetensors file: {error}") from None
    return metadata, tensors


def _form(metadata: dict[str, str], tensors: list[_Row]) -> bytes:
    """Writes the JSON of a header in the one form that it may have."""
    header: dict[str, Any] = {"__metadata__": metadata}
    for name, dtype, shape, begin, end in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()


def _refuse_foreign(raw: bytes, data_size: int) -> NoReturn:
    """Distinguishes a safetensors file that is no artefact from a damaged one."""
    metadata, tensors = _parse(raw)
    ranges = sorted((begin, end) for _, _, _, begin, end in tensors)
    ends = [0, *(end for _, end in ranges)]
    if [begin for begin, _ in ranges] != ends[:-1] or ends[-1] != data_size:
        raise PayloadError("neither an artefact nor a safetensors file")
    if any(key.startswith("kvcompress.") for key in metadata):
        raise PayloadError("the header does not begin as that of an artefact")
    raise PayloadError("not an artefact", "FAILED_PRECONDITION")
