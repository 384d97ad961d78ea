# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Profile files on the host: "Profiles" in section 5 of FORMAT.md, every rule checked."""

import hashlib
import re
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcompress.errors import InvalidArgumentError
from kvcompress.payload import PayloadError, _form, _parse

_KEY = "kvcompress.profile"
_NAMES = ("label", "training", "presets", "rotations", "groups")
_OPTIONAL = ("expectations", "caches")
_TYPES = {"U64": "<u8", "F32": "<f4", "I16": "<i2", "U8": "u1"}
_MEMBER = re.compile(r"([kv])(0|[1-9]\d{0,9}):([1-9]\d{0,4})x([1-9]\d{0,3}):(-|0|[1-9]\d?)")
_PRESET = re.compile(r"([a-z0-9-]{1,32})=\d+(\.\d+)?")
_MAX_SIZE = 1 << 30  # bytes
_MAX_CHANNELS = 65536  # of a group
_MAX_HEAD = 4096  # channels
_MAX_COMPONENTS = 8192
_CLASSES = 72


class Member(NamedTuple):
    """A tensor of a group: `heads` heads of `channels` channels."""

    role: str
    layer: int
    heads: int
    channels: int
    rotation: int | None


class Rotation(NamedTuple):
    """Pairs of channels that rotate by `increments`, in turns of 2^64 for each token."""

    interleaved: bool
    increments: npt.NDArray[np.uint64]


class Group(NamedTuple):
    """Tensors that share a basis of m components over all their n channels."""

    members: tuple[Member, ...]
    means: npt.NDArray[np.float32]  # [n]
    scales: npt.NDArray[np.float32]  # [n]
    decode: npt.NDArray[np.int16]  # [m, n]
    encode: npt.NDArray[np.int16]  # [m, n]
    factors: npt.NDArray[np.float32]  # [n], 2^15 times the scales of `encode`
    classes: npt.NDArray[np.uint8]  # [presets, m]

    @property
    def components(self) -> int:
        """How many components the basis has."""
        return len(self.decode)


class Profile(NamedTuple):
    """A profile, after every check."""

    digest: str
    label: str
    presets: dict[str, float]  # steps, by name
    rotations: tuple[Rotation, ...]
    groups: tuple[Group, ...]


def read_profile(data: bytes) -> Profile:
    """Reads the bytes of a profile file.

    Raises:
        InvalidArgumentError: A rule is broken; its reason is `INVALID_PROFILE`.
    """
    try:
        return _read(data)
    except (PayloadError, ValueError, KeyError, struct.error) as error:
        message = f"the profile breaks a rule of the format: {error}"
        raise InvalidArgumentError(message, reason="INVALID_PROFILE") from None


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _read(data: bytes) -> Profile:
    _require(8 < len(data) <= _MAX_SIZE, f"its size is not 9 to {_MAX_SIZE} bytes")
    (length,) = struct.unpack_from("<Q", data)
    _require(8 + length <= len(data), "it ends within its header")
    raw = data[8 : 8 + length]
    metadata, rows = _parse(raw)
    text = _form(metadata, rows)
    _require(raw == text.ljust(-(-len(text) // 8) * 8), "its header is not in its one form")
    more = [name for name in _OPTIONAL if f"{_KEY}.{name}" in metadata]
    keys = [_KEY, *(f"{_KEY}.{name}" for name in (*_NAMES, *more))]
    _require(list(metadata) == keys, "its metadata's keys break a rule")
    versions = {"3"} if "caches" in more else {"1", "2"}
    _require(metadata[_KEY] in versions, f"its version is not {' or '.join(sorted(versions))}")
    label, training = (metadata[f"{_KEY}.{name}"].encode() for name in ("label", "training"))
    _require(0 < len(label) <= 256 and len(training) <= 4096, "its label or training is too long")
    presets = metadata[f"{_KEY}.presets"].split(",")
    names = {preset.partition("=")[0] for preset in presets}
    _require(
        len(names) == len(presets) <= 16 and all(map(_PRESET.fullmatch, presets)),
        "a preset is malformed, or there twice",
    )
    kinds = list(filter(None, metadata[f"{_KEY}.rotations"].split(",")))
    _require(
        len(kinds) <= 64 and set(kinds) <= {"halves", "interleaved"}, "a rotation is malformed"
    )
    tensors = _Tensors(rows, memoryview(data)[8 + length :])
    rotations = tuple(
        Rotation(kind == "interleaved", tensors.take(f"rotation.{index}", "U64"))
        for index, kind in enumerate(kinds)
    )
    for rotation in rotations:
        _require(0 < 2 * len(rotation.increments) <= _MAX_HEAD, "a rotation has too many pairs")
    texts = metadata[f"{_KEY}.groups"].split(";")
    _require(len(texts) <= 4096, "it has more than 4096 groups")
    groups = tuple(
        _group(index, text, rotations, len(presets), tensors) for index, text in enumerate(texts)
    )
    tensors.require_end()
    places = [(member.role, member.layer) for group in groups for member in group.members]
    _require(len(places) == len(set(places)), "a layer's keys or values are there twice")
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    steps = {name: float(step) for name, _, step in (each.partition("=") for each in presets)}
    return Profile(digest, metadata[f"{_KEY}.label"], steps, rotations, groups)


class _Tensors:
    """The tensors of the file, which are taken in order and without gaps."""

    def __init__(self, rows: list[Any], body: memoryview) -> None:
        self._rows, self._body, self._position, self._next = rows, body, 0, 0

    def has(self, name: str) -> bool:
        """Whether the next tensor has this name."""
        return self._next < len(self._rows) and self._rows[self._next][0] == name

    def take(self, name: str, dtype: str, *shape: int) -> npt.NDArray[Any]:
        """Reads the next tensor; without a shape one of one dimension."""
        _require(self.has(name), f"it lacks {name}, or has it at another place")
        _, found, sizes, begin, end = self._rows[self._next]
        _require(
            found == dtype and (tuple(sizes) == shape if shape else len(sizes) == 1),
            f"{name} has another type or shape",
        )
        _require(begin == self._position <= end <= len(self._body), f"{name} is out of place")
        self._next, self._position = self._next + 1, end
        return np.frombuffer(self._body[begin:end], _TYPES[dtype]).reshape(sizes)

    def components(self, name: str) -> int:
        """The first dimension of the next tensor."""
        _require(self.has(name), f"it lacks {name}, or has it at another place")
        return int(self._rows[self._next][2][0])

    def require_end(self) -> None:
        """Requires that all was taken."""
        _require(
            self._next == len(self._rows) and self._position == len(self._body),
            "bytes or tensors follow its end",
        )


def _group(
    index: int, text: str, rotations: tuple[Rotation, ...], presets: int, tensors: _Tensors
) -> Group:
    """Reads a group, such as `k0:2x64:0,v0:2x64:-`, and its tensors."""
    members = []
    for part in text.split(","):
        match = _MEMBER.fullmatch(part)
        if match is None or int(match[2]) >= 1 << 32:
            raise ValueError(f"group {index} is malformed")
        rotation = None if match[5] == "-" else int(match[5])
        member = Member(match[1], int(match[2]), int(match[3]), int(match[4]), rotation)
        members.append(member)
        _require(
            member.channels <= _MAX_HEAD
            and (
                rotation is None
                or (
                    rotation < len(rotations)
                    and 2 * len(rotations[rotation].increments) <= member.channels
                )
            ),
            f"group {index} has a rotation that does not fit a tensor",
        )
    channels = sum(member.heads * member.channels for member in members)
    _require(len(members) <= 1024 and channels <= _MAX_CHANNELS, f"group {index} is too large")
    prefix = f"group.{index}."
    means = tensors.take(f"{prefix}means", "F32", channels)
    scales = tensors.take(f"{prefix}scales", "F32", channels)
    components = tensors.components(f"{prefix}decode")
    _require(0 < components <= min(channels, _MAX_COMPONENTS), f"group {index} has components")
    decode = tensors.take(f"{prefix}decode", "I16", components, channels)
    encode, own = decode, None
    if tensors.has(f"{prefix}encode"):
        encode = tensors.take(f"{prefix}encode", "I16", components, channels)
        own = tensors.take(f"{prefix}encode_scales", "F32", channels)
    classes = tensors.take(f"{prefix}classes", "U8", presets, components)
    _require(bool((np.abs(means) <= 2.0**40).all()), f"group {index} has a mean out of range")
    _require(
        bool(((scales >= 2.0**-60) & (scales <= 2.0**30)).all()),
        f"group {index} has a scale out of range",
    )
    _require(
        not bool((decode == -32768).any() or (encode == -32768).any()),
        f"group {index} has -32768 in its matrix",
    )
    factors: npt.NDArray[np.float32] = (np.float32(2.0**-15) / scales).astype(np.float32)
    if own is not None:
        factors = (own * np.float32(2.0**15)).astype(np.float32)
    _require(
        own is None or bool(((own >= 2.0**-60) & (own <= 2.0**60)).all()),
        f"group {index} has a scale of its encoder out of range",
    )
    _require(bool((classes < _CLASSES).all()), f"group {index} has a class out of range")
    return Group(tuple(members), means, scales, decode, encode, factors, classes)
