# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The decoder of artefacts on a device."""

import glob
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._arrays import TORCH_TYPES
from kvcompress._client import Client
from kvcompress.errors import InvalidArgumentError, UnimplementedError
from kvcompress.gpu._basis import DEVICE_TILING, INTERPRETER_TILING, Basis, send, slot_table
from kvcompress.gpu._decoded import Decoded, Launched
from kvcompress.gpu._device import is_interpreted, on_stream, require_device
from kvcompress.gpu._group import GroupDecoding, GroupPlan
from kvcompress.gpu._groups import Artefact, CodedGroup, read_artefact
from kvcompress.gpu._lanes import LANES, Lanes
from kvcompress.gpu._payload import read_payload
from kvcompress.gpu._profile import read_profile
from kvcompress.gpu._singles import Planned, Singles, Tokens, planned, token_range
from kvcompress.gpu._target import Target, read_slots


class Decoder:
    """Decodes artefacts of `klt-profile` on a device, bit for bit as the service does.

    Not thread safe.

    Args:
        profile: Path or bytes of the profile that the artefacts need.
        device: Of the tensors: a GPU, or with TRITON_INTERPRET=1 the CPU.
        client: What restores tensors that the device does not: those of other codecs, in
            layouts, or of types other than F32, F16 and BF16. For those of `klt-profile` its
            server has the profile. None refuses artefacts with such tensors.
        scratch: Bytes of the buffers whose size goes with the tokens that are decoded at once, of
            all parts that are decoded side by side. A block of tokens is decoded at once even if
            it takes more.

    Attributes:
        device: Of the tensors, with its number.
        profile: What was read of the profile, or None.
        bases: Of its groups, on the device.

    Raises:
        InvalidArgumentError: The profile is damaged, or the device is not one for Triton as it
            was imported.
        OSError: The profile cannot be read.
    """

    def __init__(
        self,
        profile: str | PathLike[str] | bytes | None = None,
        device: str | torch.device = "cuda",
        *,
        client: Client | None = None,
        scratch: int = 1 << 30,
    ) -> None:
        """Reads the profile, and sends it to the device."""
        self.device = require_device(device)
        self._lanes = Lanes(self.device)
        self.profile = None
        if profile is not None:
            data = profile if isinstance(profile, bytes) else Path(profile).read_bytes()
            self.profile = read_profile(data)
        self._client, self._scratch = client, scratch
        tiling = INTERPRETER_TILING if is_interpreted() else DEVICE_TILING
        self.bases: list[Basis] = []
        if self.profile is not None:
            for index in range(len(self.profile.groups)):
                self.bases.append(Basis(self.profile, index, tiling, self.device))
        self._slots = send(slot_table(), self.device)

    def decode(
        self,
        artefact: bytes | bytearray | memoryview | torch.Tensor,
        into: Mapping[str, torch.Tensor] | None = None,
        *,
        tensors: Sequence[str] | None = None,
        tokens: Tokens | None = None,
        slots: torch.Tensor | None = None,
        stream: "torch.cuda.Stream | None" = None,
        wait: bool = True,
        by_layer: bool = False,
    ) -> Decoded:
        """Verifies an artefact on the host, and decodes it on the device.

        The parts of an artefact, which are groups and the payloads of each codec and type, are
        decoded side by side in streams of the Decoder, after what `stream` has. With `wait` the
        host waits for all of them, to learn whether a payload is broken; without it
        `Decoded.check` does, and until then no stream waits but those of `Decoded.wait`.

        Args:
            artefact: All of it; a tensor is of uint8.
            into: Tensors by name to write to, of the device and of any strides, in shape and
                type those of the artefact, with the tokens of the range. They do not overlap.
                Others are allocated.
            tensors: Names of tensors to decode, in the order in which they are needed. Default:
                all, in that of the file.
            tokens: Half-open range of tokens. Default: all.
            slots: For a paged cache: where each token of the range goes, integers that differ,
                or -1 for nowhere. `into` then has all tensors, as [slots, heads, head_dim] of any
                strides, and the artefact one batch.
            stream: After which kernels run, and which waits for them. Default: the current one.
            wait: Whether to wait for the device.
            by_layer: Whether payloads that are not of a group are decoded layer by layer, so that
                `Decoded.wait` has less to wait for.

        Returns:
            The tensors, and which of them the host restored.

        Raises:
            PayloadError: The artefact breaks a rule. What `into` holds is then not defined.
            FailedPreconditionError: The artefact needs another profile.
            InvalidArgumentError: An argument does not fit the artefact.
            UnimplementedError: There are tensors for the host, and no client.
            KVCompressError: The client cannot restore those.
        """
        data = _bytes(artefact)
        found = read_artefact(data, self.profile, tensors)
        given = dict(into or {})
        if unknown := sorted(set(given) - set(found.names)):
            raise InvalidArgumentError(f"`into` has {unknown[0]!r}, which is not decoded")
        with on_stream(self.device, stream):
            target = Target(given, None if slots is None else read_slots(slots), self.device)
            decoded = self._launch(data, found, target, tokens, by_layer=by_layer)
            if wait:
                decoded.check()
        return decoded

    def _launch(
        self,
        data: bytes,
        found: Artefact,
        target: Target,
        tokens: Tokens | None,
        *,
        by_layer: bool,
    ) -> Decoded:
        """Launches all parts, and restores meanwhile what the device cannot decode."""
        made, parts, most = self._plan_all(data, found, target, tokens, by_layer)
        launched = []
        if parts:
            at = send(target.slots_of(most), self.device)
        for part in parts:
            shared = [at, *(made[name] for name in part.names)]
            event = self._lanes.launch(partial(part.decoding.launch, at), shared)
            launched.append(Launched(part.names, part.decoding, event))
        if found.fallbacks:
            made |= self._fall_back(data, found, target, tokens)
        ordered = {name: made[name] for name in found.names}
        return Decoded(ordered, found.fallbacks, launched, self._lanes)

    def scratch_bytes(
        self,
        artefact: bytes | bytearray | memoryview | torch.Tensor,
        *,
        tensors: Sequence[str] | None = None,
        tokens: Tokens | None = None,
        by_layer: bool = False,
    ) -> int:
        """How much memory `decode` takes on the device at most, besides its results.

        What the allocator rounds up, and tensors of the host, are not counted.
        """
        data = _bytes(artefact)
        found = read_artefact(data, self.profile, tensors)
        # Only shapes and payloads matter here.
        target = Target({}, None, torch.device("meta"))
        _, parts, most = self._plan_all(data, found, target, tokens, by_layer)
        return sum(part.decoding.scratch for part in parts) + 8 * most

    def _plan(
        self, data: bytes, group: CodedGroup, tokens: Tokens | None, scratch: int
    ) -> GroupPlan:
        """Checks the payload of a group, and plans how it is decoded."""
        if self.profile is None:
            raise ValueError("a group needs a profile")
        held = memoryview(data)[group.holder.begin : group.holder.end]
        payload = read_payload(held, group.number, self.profile, group.entries)
        window = token_range(tokens, group.holder)
        return GroupPlan(self.bases[group.number], payload, window, len(held), scratch)

    def _plan_all(
        self, data: bytes, found: Artefact, target: Target, tokens: Tokens | None, by_layer: bool
    ) -> tuple[dict[str, torch.Tensor], list[Planned], int]:
        """Plans all that the device decodes: tensors, parts, and how many slots these need."""
        tensors: dict[str, torch.Tensor] = {}
        # Parts side by side share the scratch memory.
        kinds = {(entry.codec, entry.dtype, entry.layer) for entry in found.singles}
        ways = len(found.groups) + len(kinds if by_layer else {kind[:2] for kind in kinds})
        scratch = self._scratch // max(1, min(LANES, ways))
        plans = [self._plan(data, group, tokens, scratch) for group in found.groups]
        outputs = Singles(found.singles, tokens).outputs(target, tensors)
        parts = planned(memoryview(data), outputs, scratch, by_layer=by_layer)
        most = max((output.tokens for output in outputs), default=0)
        for group, plan in zip(found.groups, plans, strict=True):
            parts.append(self._plan_group(data, group, plan, target, tensors))
            most = max(most, plan.tokens.end - plan.tokens.first)
        order = {name: place for place, name in enumerate(found.order)}
        parts.sort(key=lambda part: min(order[name] for name in part.names))
        return tensors, parts, most

    def _plan_group(
        self,
        data: bytes,
        group: CodedGroup,
        plan: GroupPlan,
        target: Target,
        tensors: dict[str, torch.Tensor],
    ) -> Planned:
        """Plans a group, whose tensors are added to the others."""
        outputs, names, count = {}, [], plan.tokens.end - plan.tokens.first
        for member in group.wanted:
            entry = group.entries[member]
            shape = (*entry.shape[:-2], count, entry.shape[-1])
            dtype = getattr(torch, TORCH_TYPES[entry.dtype])
            tensors[entry.name] = target.tensor(entry.name, shape, dtype)
            outputs[member] = target.by_slots(tensors[entry.name])
            names.append(entry.name)
        held = memoryview(data)[group.holder.begin : group.holder.end]
        slots = target.slots_of(count)
        decoding = GroupDecoding(plan, held, self._slots, outputs, slots, group.holder)
        return Planned(decoding, names)

    def _fall_back(
        self, data: bytes, found: Artefact, target: Target, tokens: Tokens | None
    ) -> dict[str, torch.Tensor]:
        """Restores what the device cannot decode."""
        if self._client is None:
            name, reason = next(iter(found.fallbacks.items()))
            raise UnimplementedError(
                f"the device does not decode tensor {name!r}: {reason}; give the Decoder a client",
                tensor=name,
            )
        patterns = [glob.escape(name) for name in found.fallbacks]
        result = self._client.decompress(data, tensors=patterns, tokens=tokens)
        return {name: target.copy(name, values) for name, values in result.torch_tensors().items()}


def _bytes(artefact: bytes | bytearray | memoryview | torch.Tensor) -> bytes:
    """The artefact in the memory of the host."""
    if not isinstance(artefact, torch.Tensor):
        return bytes(artefact)
    if artefact.dtype != torch.uint8 or artefact.dim() != 1:
        raise InvalidArgumentError("an artefact in a tensor is of uint8 and one dimension")
    return bytes(artefact.cpu().numpy())
