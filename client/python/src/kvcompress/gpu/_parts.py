# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What encoders make of tensors: the parts of an artefact, codec by codec."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu._artefact import Part
from kvcompress.gpu._basis import Basis
from kvcompress.gpu._encoding_tables import EncodingBasis
from kvcompress.gpu._group_encoding import GroupEncoding
from kvcompress.gpu._place import view_of
from kvcompress.gpu._profile import Profile
from kvcompress.gpu._quantizing import Quantizing, Source
from kvcompress.gpu._roles import Role, role_of
from kvcompress.payload import payload_size
from kvcompress.payload._codec import Entry
from kvcompress.payload._layouts import Layout, LayoutError

_DTYPES = ("F32", "F16", "BF16")
_LATENTS = "t(d+r):"


class Coding(Protocol):
    """How an encoder codes tensors.

    Attributes:
        name: Codec and parameters, as reports have them.
        profile: The profile that artefacts need, or None.
        options: What a client is asked for, besides the name, where it encodes instead.
    """

    name: str
    profile: Profile | None
    options: Mapping[str, Any]

    def entry(self, name: str, dtype: str, shape: tuple[int, ...]) -> Entry:
        """The entry of a tensor in the manifest, without digest and place."""

    def refusal(self, sources: Sequence[Source]) -> tuple[str, str] | None:
        """The name of a tensor that is for the host, and the reason; None where there is none."""

    def parts(
        self, sources: Sequence[Source], first_token: int, metadata: Mapping[str, str]
    ) -> list[Part]:
        """Encodes the tensors.

        Args:
            sources: The tensors.
            first_token: The position of the first token in the model's input.
            metadata: Of the artefact.

        Raises:
            InvalidArgumentError: An element has no code.
        """


def entry_text(entry: Entry) -> str:
    """The entry in the manifest, but for the digest."""
    shape = "x".join(map(str, entry.shape)) or "-"
    return f"{entry.codec} {entry.dtype} {shape} {role_of(entry.name)}"


def view_in(entry: Entry, tensor: torch.Tensor) -> torch.Tensor:
    """The elements of an entry in a tensor: all of it, or a view [batch, heads, tokens, dim]."""
    if entry.view is None:
        return tensor
    layout, index = entry.view
    return view_of(tensor, layout.where(index)).reshape(entry.shape)


def latent_sources(whole: Source, text: str) -> list[Source]:
    """The latent and the rotated part of a tensor [tokens, channels].

    Args:
        whole: The tensor, and its entry without a layout.
        text: Its layout.

    Raises:
        InvalidArgumentError: It is another layout, or does not fit.
    """
    entry = whole.entry
    try:
        layout = Layout(entry.name, text, entry.shape)
    except LayoutError as error:
        raise InvalidArgumentError(f"tensor {entry.name!r}: {error}", tensor=entry.name) from None
    if not text.startswith(_LATENTS):
        raise InvalidArgumentError(
            f"the device encodes latents, such as {_LATENTS}d=512, and no other layout: not {text}"
        )
    sources = []
    for index, view in enumerate(layout.views):
        # The rotated part is a key of all heads.
        own = entry._replace(name=view.name, shape=view.shape, view=(layout, index))
        own = own._replace(role="k") if index else own
        sources.append(Source(own, view_in(own, whole.tensor)))
    return sources


def view_text(entry: Entry, size: int) -> str:
    """The part of a view, whose payload has a size, in the entry of its tensor."""
    if entry.view is None:
        raise ValueError("the entry is of no view")
    layout, index = entry.view
    text = f"{entry.codec} {Role(entry.role, entry.layer)} {size}"
    if index:
        return text
    return f"@{layout.text} {entry.dtype} {'x'.join(map(str, layout.shape))} {text}"


def other_type(sources: Sequence[Source]) -> tuple[str, str] | None:
    """The first tensor whose type kernels do not read."""
    for entry, tensor in sources:
        if entry.dtype not in _DTYPES:
            return entry.name, f"it is {tensor.dtype}, not one of {', '.join(_DTYPES)}"
    return None


class IntegerCoding:
    """`int4` and `int8`."""

    def __init__(self, bits: int, group: int, device: torch.device) -> None:
        """Takes bits of codes and elements of groups."""
        self.name = f"int{bits}:{group}"
        self.profile: Profile | None = None
        self.options: Mapping[str, Any] = {}
        self._bits, self._group, self._device = bits, group, device

    def entry(self, name: str, dtype: str, shape: tuple[int, ...]) -> Entry:
        """The entry of a tensor in the manifest, without digest and place."""
        return Entry(name, self.name, dtype, shape, *role_of(name), "", 0, 0)

    def refusal(self, sources: Sequence[Source]) -> tuple[str, str] | None:
        """The name of a tensor of another type, and the reason."""
        return other_type(sources)

    def parts(
        self, sources: Sequence[Source], first_token: int, metadata: Mapping[str, str]
    ) -> list[Part]:
        """Encodes the tensors, wherever they begin."""
        payloads = Quantizing(self._bits, self._group, sources).run(self._device)
        parts = []
        for (entry, _), payload in zip(sources, payloads, strict=True):
            size, tensor = len(payload), None
            text = entry_text(entry)
            if entry.view is not None:
                text, tensor = view_text(entry, size), entry.view[0].name
            parts.append(Part(entry.name, text, [payload], size, tensor=tensor))
        return parts


class _Fit(NamedTuple):
    """A group of the profile, and which of the sources are its tensors."""

    number: int
    sources: list[int]


class ProfileCoding:
    """`klt-profile`.

    Args:
        profile: The profile.
        preset: The name of one of its presets.
        bases: Of its groups, on the device.
        block_tokens: Of a block, 16 to 256.
        scratch: Bytes of the buffers whose size goes with the tokens that are encoded at once.
    """

    def __init__(
        self,
        profile: Profile,
        preset: str,
        bases: Sequence[Basis],
        device: torch.device,
        block_tokens: int,
        scratch: int,
    ) -> None:
        """Sends what encoding needs."""
        if preset not in profile.presets:
            raise InvalidArgumentError(
                f"the profile {profile.label!r} has no preset {preset!r}: it has "
                f"{', '.join(profile.presets)}",
                reason="INVALID_CODEC_OPTION",
                field="options.codec",
            )
        if preset == "contract":
            raise InvalidArgumentError(
                "the device does not encode klt:contract, whose bounds need several passes: use a "
                "Client",
                reason="INVALID_CODEC_OPTION",
                field="options.codec",
            )
        if not 16 <= block_tokens <= 256:
            raise InvalidArgumentError(
                f"block_tokens is {block_tokens}, and blocks have 16 to 256 tokens", limit=256
            )
        self.name, self._preset = f"klt:{preset}", preset
        self.profile: Profile | None = profile
        self.options: Mapping[str, Any] = {
            "profile": profile.digest,
            "block_tokens": block_tokens,
        }
        self._presets, self._groups = profile.presets, profile.groups
        self._codec = f"klt-profile:{preset}"
        self._bases, self._block_tokens, self._scratch = bases, block_tokens, scratch
        self._own = [EncodingBasis(basis, device) for basis in bases]
        self._side = None
        if device.type == "cuda":
            self._side = torch.cuda.Stream(device)
            # Calls may be in other streams than the one that the bases were sent in.
            torch.cuda.current_stream(device).synchronize()

    def entry(self, name: str, dtype: str, shape: tuple[int, ...]) -> Entry:
        """The entry of a tensor in the manifest, without digest and place."""
        return Entry(name, self._codec, dtype, shape, *role_of(name), "", 0, 0)

    def refusal(self, sources: Sequence[Source]) -> tuple[str, str] | None:
        """The name of a tensor that is in no whole group of one shape, and the reason."""
        if other := other_type(sources):
            return other
        fits = {number for fit in self._fits(sources) for number in fit.sources}
        for number, source in enumerate(sources):
            if number not in fits:
                reason = "the profile has no group for it that the cache has whole, in one shape"
                return source.entry.name, reason
        return None

    def _fits(self, sources: Sequence[Source]) -> list[_Fit]:
        """The groups of the profile that the sources have whole."""
        places: dict[tuple[str, int | None], int] = {}
        for number, (entry, _) in enumerate(sources):
            places.setdefault((entry.role, entry.layer), number)
        fits = []
        for index, group in enumerate(self._groups):
            found = [places.get((member.role, member.layer)) for member in group.members]
            numbers = [number for number in found if number is not None]
            entries = [sources[number].entry for number in numbers]
            whole = len(numbers) == len(found) and all(
                len(entry.shape) in (3, 4)
                and 0 not in entry.shape
                and (entry.shape[-3], entry.shape[-1]) == (member.heads, member.channels)
                for entry, member in zip(entries, group.members, strict=False)
            )
            alike = {(entry.shape[:-3], entry.shape[-2:-1], entry.dtype) for entry in entries}
            if whole and len(alike) == 1:
                fits.append(_Fit(index, numbers))
        return fits

    def parts(
        self, sources: Sequence[Source], first_token: int, metadata: Mapping[str, str]
    ) -> list[Part]:
        """Encodes the tensors, which are those of whole groups."""
        fits = self._fits(sources)
        encodings = [self._encoding(fit, sources, first_token) for fit in fits]
        # The host gets a part ready while the device encodes the one before it.
        waiting = None
        for fit, encoding in zip(fits, encodings, strict=True):
            preset = list(self._presets).index(self._preset)
            step = self._presets[self._preset]
            for started in encoding.start(fit.number, preset, step, self._block_tokens):
                if waiting is not None:
                    waiting[0].collect(waiting[1])
                waiting = encoding, started
        if waiting is not None:
            waiting[0].collect(waiting[1])
        payloads = {
            max(fit.sources): encoding.pieces()
            for fit, encoding in zip(fits, encodings, strict=True)
        }
        parts = []
        for number, (entry, _) in enumerate(sources):
            bound = payload_size(entry.codec, entry.shape, entry.dtype, entry.role)
            parts.append(Part(entry.name, entry_text(entry), payloads.get(number, []), bound))
        return parts

    def _encoding(self, fit: _Fit, sources: Sequence[Source], first_token: int) -> GroupEncoding:
        """What encodes a group."""
        tensors, names = {}, {}
        for member, number in enumerate(fit.sources):
            tensor = sources[number].tensor
            tensors[member] = tensor if tensor.dim() == 4 else tensor.unsqueeze(0)
            names[member] = sources[number].entry.name
        return GroupEncoding(
            self._bases[fit.number],
            self._own[fit.number],
            tensors,
            names,
            sources[fit.sources[0]].entry.dtype,
            first_token,
            self._scratch,
            self._side,
        )

    def group_of(self, entry: Entry) -> int | None:
        """The group of the profile that has a tensor of a role and layer."""
        for index, group in enumerate(self._groups):
            if any((m.role, m.layer) == (entry.role, entry.layer) for m in group.members):
                return index
        return None


def group_numbers(coding: Coding, entries: Sequence[Entry]) -> Mapping[str, int]:
    """The groups of the profile that tensors are coded in, by name."""
    if not isinstance(coding, ProfileCoding):
        return {}
    numbers = {entry.name: coding.group_of(entry) for entry in entries}
    return {name: number for name, number in numbers.items() if number is not None}
