# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes artefacts: sections 1 to 3 of FORMAT.md."""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]
import xxhash

from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu._profile import Profile
from kvcompress.gpu._threads import for_each
from kvcompress.payload._profiled import NO_DIGEST, PROFILE_KEY, is_profiled
from kvcompress.v1 import rope_pb2

_ZEROS = "0" * 32
_LABEL = re.compile(r"[a-z0-9_.-]{1,64}")
_MOST_LABELS = 32
_MOST_LABEL = 1024  # bytes
# That the payload of a group may have beyond those of a tensor's bound.
_GROUP_DIGITS = 4


class Part(NamedTuple):
    """A tensor of an artefact, or a view of one.

    Attributes:
        name: Its name.
        entry: Its entry in the manifest, without the digest; of a view its part of the entry.
        pieces: Of its payload, in order: bytes, or tensors of uint8 on the device.
        largest: The size bound of its codec, of which the header's length is made.
        rope: The rotary embedding that was removed from it.
        tensor: Of a view, the name of its tensor, whose views follow one another.
    """

    name: str
    entry: str
    pieces: Sequence[bytes | torch.Tensor]
    largest: int
    rope: rope_pb2.RopeFinding | None = None
    tensor: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return sum(map(len, self.pieces))

    def line(self, digest: str) -> str:
        """The entry, and the digest; of a payload that another tensor of the group has, none."""
        shared = is_profiled(self.entry) and not self.size
        return f"{self.entry} {NO_DIGEST if shared else digest}"


class Written(NamedTuple):
    """An artefact.

    Attributes:
        data: All of it, uint8 on the host, in pinned memory where a device can copy from it.
        checksum: `xxh3-128:` with the 32 digits that identify it.
        digests: Of the payloads, 32 hexadecimal digits each.
    """

    data: torch.Tensor
    checksum: str
    digests: list[str]


def check_texts(labels: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Requires labels and metadata that an artefact can have.

    Raises:
        InvalidArgumentError: A rule is broken.
    """
    if len(labels) > _MOST_LABELS:
        raise InvalidArgumentError(
            f"there are {len(labels)} labels, and an artefact has at most {_MOST_LABELS}",
            limit=_MOST_LABELS,
            reason="INVALID_LABEL",
        )
    for key, value in labels.items():
        if not _LABEL.fullmatch(key) or len(value.encode()) > _MOST_LABEL:
            raise InvalidArgumentError(
                f"the label {key!r} is not 1 to 64 of a-z, 0-9, `_`, `.` and `-`, or its value has "
                f"more than {_MOST_LABEL} bytes",
                limit=_MOST_LABEL,
                reason="INVALID_LABEL",
            )
    for key in metadata:
        if key.startswith("kvcompress."):
            raise InvalidArgumentError(
                f"the metadata key {key!r} begins with `kvcompress.`, which is of the format: "
                "leave it out"
            )


def write_artefact(
    parts: Sequence[Part],
    labels: Mapping[str, str],
    metadata: Mapping[str, str],
    profile: Profile | None,
    device: torch.device,
) -> Written:
    """Puts an artefact together, and waits for what the device copies.

    Args:
        parts: Its tensors, in order.
        labels: Bound to it.
        metadata: Of the source, in its order.
        profile: That tensors of `klt-profile` need.
        device: That has the pieces which are tensors.
    """
    sizes = [part.size for part in parts]
    # Digests have one length.
    size = len(_text(parts, sizes, [_ZEROS] * len(parts), labels, metadata, profile))
    data = torch.empty(8 + size + sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda")
    held, position = memoryview(data.numpy()), 8 + size
    payloads = []
    for part, length in zip(parts, sizes, strict=True):
        payloads.append(held[position : position + length])
        for piece in part.pieces:
            end = position + len(piece)
            if isinstance(piece, torch.Tensor):
                data[position:end].copy_(piece, non_blocking=True)
            else:
                held[position:end] = piece
            position = end
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    digests = for_each(xxhash.xxh3_128_hexdigest, payloads, len(data))
    text = _text(parts, sizes, digests, labels, metadata, profile)
    header = struct.pack("<Q", len(text)) + text
    digest = xxhash.xxh3_128_hexdigest(header)
    held[: len(header)] = header.replace(_ZEROS.encode(), digest.encode(), 1)
    return Written(data, f"xxh3-128:{digest}", digests)


def _text(
    parts: Sequence[Part],
    sizes: Sequence[int],
    digests: Sequence[str],
    labels: Mapping[str, str],
    metadata: Mapping[str, str],
    profile: Profile | None,
) -> bytes:
    """The JSON of the header, with zeros as its checksum, filled up to its length."""
    lines: list[str] = []
    for number, (part, digest) in enumerate(zip(parts, digests, strict=True)):
        if _goes_on(parts, number):
            lines[-1] += f" {part.line(digest)}"
        else:
            lines.append(part.line(digest))
    texts = {
        "kvcompress.checksum": f"xxh3-128:{_ZEROS}",
        "kvcompress.format": "1",
        "kvcompress.layout": "bhtd",
        "kvcompress.tensors": ";".join(lines),
    }
    if profile is not None and parts:
        texts[PROFILE_KEY] = f"{profile.digest} {profile.label}"
    texts |= {f"kvcompress.label.{key}": labels[key] for key in sorted(labels)}
    texts |= metadata
    length = len(_header(parts, [part.largest for part in parts], texts))
    text = _header(parts, sizes, texts)
    more = sum(_GROUP_DIGITS for part in parts if is_profiled(part.entry))
    return text.ljust(length + -(8 + length) % 8 + more + -more % 8)


def _goes_on(parts: Sequence[Part], number: int) -> bool:
    """Whether a part is a view of the same tensor as the one before it."""
    tensor = parts[number].tensor
    return tensor is not None and number > 0 and parts[number - 1].tensor == tensor


def _header(parts: Sequence[Part], sizes: Sequence[int], texts: Mapping[str, str]) -> bytes:
    """The JSON of the header for payloads of these sizes."""
    header: dict[str, object] = {"__metadata__": texts}
    begin = position = 0
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        begin = begin if _goes_on(parts, number) else position
        position += size
        offsets = [begin, position]
        fields = {"dtype": "U8", "shape": [position - begin], "data_offsets": offsets}
        header[part.tensor or part.name] = fields
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
