# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The payloads of an artefact that the device decodes, and the tensors that the host restores."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._arrays import TORCH_TYPES
from kvcompress.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from kvcompress.gpu._place import MOST, geometry
from kvcompress.gpu._profile import Group, Member, Profile
from kvcompress.gpu._threads import for_each
from kvcompress.payload import PayloadError, read_header, verify_digest
from kvcompress.payload._codec import Entry
from kvcompress.payload._profiled import is_profiled

DTYPES = ("F32", "F16", "BF16")
"""Types of elements that kernels write of groups."""

_MAX_TOKENS = (1 << 32) - 1
_MOST_TOKENS_PER_BYTE = 3
_SINGLE = ("int4", "int8", "ecsq", "klt", "lossless")
"""Codecs whose payloads are decoded one by one."""
_GROUPED = "klt-profile"
"""The codec whose payloads of groups are decoded."""


class CodedGroup(NamedTuple):
    """A group that the device decodes.

    Attributes:
        number: In the profile.
        entries: Its tensors, in the order of the profile.
        holder: The one with the payload.
        wanted: Numbers of those that were asked for.
    """

    number: int
    entries: list[Entry]
    holder: Entry
    wanted: list[int]


class Artefact(NamedTuple):
    """What an artefact asks for, after its header was verified.

    Attributes:
        groups: That the device decodes.
        singles: Payloads that the device decodes one by one: of tensors, and of all views of
            tensors in a layout, in the order of the file.
        fallbacks: Tensors that the host restores, with the reason.
        names: All tensors that were asked for, in the order of the file.
        order: The same, in the order in which they were asked for.
        entries: Of all payloads, whose digests are not verified yet.
        labels: Bound by the caller.
        metadata: The source's own, in its order.
    """

    groups: list[CodedGroup]
    singles: list[Entry]
    fallbacks: dict[str, str]
    names: list[str]
    order: list[str]
    entries: Sequence[Entry]
    labels: Mapping[str, str]
    metadata: Mapping[str, str]


def read_artefact(
    data: memoryview, profile: Profile | None, wanted: Sequence[str] | None
) -> Artefact:
    """Verifies the header of an artefact, and sorts its tensors.

    Args:
        data: All of the artefact.
        profile: The decoder's; None where it has none.
        wanted: Names of tensors; None for all.

    Raises:
        PayloadError: A rule is broken, or the checksum is wrong.
        FailedPreconditionError: It needs another profile.
        InvalidArgumentError: It has no tensor of a name that is wanted.
    """
    length = int.from_bytes(data[:8], "little")
    header = read_header(bytes(data[: 8 + length]), len(data))
    _require_profile(header.profile, profile)
    names = list(dict.fromkeys(tensor_name(entry) for entry in header.tensors))
    if wanted is not None:
        if missing := sorted(set(wanted) - set(names)):
            raise InvalidArgumentError(
                f"the artefact has no tensor {missing[0]!r}", reason="UNKNOWN_TENSOR"
            )
        names = [name for name in names if name in set(wanted)]
    asked = set(names)
    single = [
        entry
        for entry in header.tensors
        if not is_profiled(entry.codec) and tensor_name(entry) in asked
    ]
    fallbacks = {tensor_name(entry): reason for entry in single if (reason := _host_reason(entry))}
    groups = []
    for group in _group(header.tensors, () if profile is None else profile.groups):
        places = [i for i, entry in enumerate(group.entries) if tensor_name(entry) in asked]
        if reason := _reason(group.entries):
            fallbacks |= dict.fromkeys((tensor_name(group.entries[i]) for i in places), reason)
        elif places:
            groups.append(group._replace(wanted=places))
    ordered = {name: fallbacks[name] for name in names if name in fallbacks}
    order = list(dict.fromkeys(names if wanted is None else wanted))
    rank = {name: place for place, name in enumerate(order)}
    singles = [entry for entry in single if tensor_name(entry) not in ordered]
    singles.sort(key=lambda entry: rank[tensor_name(entry)])
    texts = header.labels, header.metadata
    return Artefact(groups, singles, ordered, names, order, header.tensors, *texts)


def require_labels(artefact: Artefact, expected: Mapping[str, str] | None) -> None:
    """Requires labels that an artefact must carry.

    Raises:
        DataLossError: One is missing, or differs; its reason is `IDENTITY_MISMATCH`.
    """
    for key, value in sorted((expected or {}).items()):
        if artefact.labels.get(key) != value:
            how = "differs" if key in artefact.labels else "is missing"
            raise DataLossError(
                f"the artefact is not the one expected: label {key!r} {how}",
                reason="IDENTITY_MISMATCH",
                field="options.expected_labels",
            )


def verify_payloads(data: memoryview, artefact: Artefact) -> None:
    """Compares all payloads with their digests, large ones side by side.

    Raises:
        PayloadError: One differs; of several the first.
    """

    def verify(entry: Entry) -> None:
        verify_digest(data[entry.begin : entry.end], entry)

    for_each(verify, artefact.entries, len(data))


def _require_profile(needed: tuple[str, str] | None, profile: Profile | None) -> None:
    """Requires the profile that an artefact needs, if it needs one."""
    if needed is None or (profile is not None and needed[0] == profile.digest):
        return
    has = "none" if profile is None else f"{profile.digest} ({profile.label})"
    raise FailedPreconditionError(
        f"the artefact needs the profile {needed[0]} ({needed[1]}), and the decoder has {has}: "
        "make a Decoder with the profile it needs",
        reason="PROFILE_MISSING",
        profile=needed[0],
    )


def tensor_name(entry: Entry) -> str:
    """The name of the tensor in the file, also for a view."""
    return entry.name if entry.view is None else entry.view[0].name


def _host_reason(entry: Entry) -> str | None:
    """Why the host restores a tensor with such a payload; None where the device decodes it."""
    if entry.codec.partition(":")[0] not in _SINGLE:
        return f"{entry.codec} is decoded on the host"
    if not hasattr(torch, TORCH_TYPES[entry.dtype]):
        return f"torch has no type for {entry.dtype}"
    if max(geometry(entry)[1:]) >= MOST:
        return f"it has {MOST} heads, tokens or channels, or more"
    return None


def _reason(entries: list[Entry]) -> str | None:
    """Why the host restores a group; None where the device decodes it."""
    for entry in entries:
        if entry.codec.partition(":")[0] != _GROUPED:
            return f"{entry.codec} is decoded on the host"
    dtypes = sorted({entry.dtype for entry in entries})
    if any(entry.view is not None for entry in entries):
        return "a tensor of its group is in a layout"
    if len(dtypes) > 1:
        return f"its group has tensors of several types: {', '.join(dtypes)}"
    if dtypes[0] not in DTYPES:
        return f"{dtypes[0]} is not one of {', '.join(DTYPES)}"
    return None


def _group(entries: Sequence[Entry], groups: Sequence[Group]) -> list[CodedGroup]:
    """Finds the groups of an artefact, whole and each in one shape."""
    places: dict[tuple[str, int | None], tuple[int, Entry]] = {}
    for order, entry in enumerate(entries):
        if is_profiled(entry.codec):
            if (entry.role, entry.layer) in places:
                raise PayloadError(
                    f"{entry.codec} has a layer's keys or values twice", tensor=entry.name
                )
            places[entry.role, entry.layer] = order, entry
    coded = []
    for index, group in enumerate(groups):
        found = [places.pop((m.role, m.layer), None) for m in group.members]
        there = [place for place in found if place is not None]
        if not there:
            continue
        holder = max(there, key=lambda place: place[0])[1]
        if len(there) != len(found):
            raise PayloadError(
                f"{holder.codec} has some tensors of a group only", tensor=holder.name
            )
        members = [entry for _, entry in there]
        _check(members, group.members, holder)
        coded.append(CodedGroup(index, members, holder, []))
    if places:
        _, left = next(iter(places.values()))
        raise PayloadError(f"{left.codec} has no group for the tensor", tensor=left.name)
    return coded


def _check(entries: list[Entry], members: Sequence[Member], holder: Entry) -> None:
    """Requires the shapes of the profile, one number of tokens, and one payload."""
    sizes = set()
    for entry, member in zip(entries, members, strict=True):
        shape = entry.shape
        if (
            len(shape) not in (3, 4)
            or 0 in shape
            or (shape[-3], shape[-1]) != (member.heads, member.channels)
            or shape[-2] >= _MAX_TOKENS
        ):
            raise PayloadError(
                f"{entry.codec} has a tensor {list(shape)}, and the profile heads x channels "
                f"{member.heads} x {member.channels}",
                tensor=entry.name,
            )
        batches = shape[0] if len(shape) == 4 else 1
        # 256 coded tokens take 144 bytes at least, and a sink two of each batch.
        if batches * shape[-2] > _MOST_TOKENS_PER_BYTE * (holder.end - holder.begin):
            raise PayloadError(
                f"the payload of {holder.codec} has {holder.end - holder.begin} bytes, too few for "
                f"{batches} x {shape[-2]} tokens",
                tensor=holder.name,
            )
        sizes.add((batches, shape[-2]))
        if entry is not holder and entry.end > entry.begin:
            raise PayloadError(
                f"{entry.codec} has a payload before the last tensor of its group",
                tensor=entry.name,
            )
    if len({entry.codec.partition(":")[0] for entry in entries}) != 1:
        raise PayloadError(
            f"{holder.codec} has tensors of another codec in its group", tensor=holder.name
        )
    if len(sizes) != 1:
        raise PayloadError(
            f"{holder.codec} has tensors of several shapes in a group", tensor=holder.name
        )
