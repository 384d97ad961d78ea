# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The decoder of artefacts on a device."""

import glob
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._arrays import TORCH_TYPES
from kvcompress._client import Client
from kvcompress.errors import InvalidArgumentError, UnimplementedError
from kvcompress.gpu._basis import DEVICE_TILING, INTERPRETER_TILING, Basis, slot_table
from kvcompress.gpu._decoded import Decoded, Launched
from kvcompress.gpu._device import is_interpreted, on_stream, require_device
from kvcompress.gpu._group import GroupDecoding
from kvcompress.gpu._group_plan import GroupPlan
from kvcompress.gpu._groups import (
    Artefact,
    CodedGroup,
    read_artefact,
    require_labels,
    verify_payloads,
)
from kvcompress.gpu._lanes import LANES, Lanes
from kvcompress.gpu._payload import read_payload
from kvcompress.gpu._place import Range
from kvcompress.gpu._profile import read_profile
from kvcompress.gpu._singles import Planned, Singles, Tokens, planned, token_range
from kvcompress.gpu._target import Target, read_slots
from kvcompress.gpu._upload import Held, padded, read_file, send
from kvcompress.payload import PayloadError

_Bytes: TypeAlias = "str | PathLike[str] | bytes | bytearray | memoryview | torch.Tensor"


class _Pending(NamedTuple):
    """A part of an artefact that is still to be planned: its place in the order, and how."""

    place: int
    plan: Callable[[], Planned]


class Decoder:
    """Decodes artefacts on a device, bit for bit as the service does.

    Those of `klt-profile`, `klt`, `ecsq`, `int4`, `int8` and `lossless`. Calls of `decode` from
    several threads wait for each other.

    Args:
        profile: Path or bytes of the profile that artefacts of `klt-profile`, and of
            `lossless-profile`, need.
        device: Of the tensors: a GPU, or with TRITON_INTERPRET=1 the CPU.
        client: What restores tensors that the device does not, such as those of other codecs. For
            those of `klt-profile` and `lossless-profile` its server has the profile. None refuses
            artefacts with such tensors.
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
        self._lock = threading.Lock()
        if self.device.type == "cuda":
            # Calls may be after other streams than the one that this was sent in.
            torch.cuda.current_stream(self.device).synchronize()

    def decode(
        self,
        artefact: _Bytes,
        into: Mapping[str, torch.Tensor] | None = None,
        *,
        tensors: Sequence[str] | None = None,
        tokens: Tokens | None = None,
        slots: torch.Tensor | None = None,
        expected_labels: Mapping[str, str] | None = None,
        stream: "torch.cuda.Stream | None" = None,
        wait: bool = True,
        by_layer: bool = False,
    ) -> Decoded:
        """Decodes an artefact on the device, and verifies it meanwhile on the host.

        The parts of an artefact, which are groups and the payloads of each codec and type, are
        decoded side by side in streams of the Decoder, after what `stream` has. With `wait` the
        host waits for all of them, to learn whether a payload is broken; without it
        `Decoded.check` does, and until then no stream waits but those of `Decoded.wait`.

        Args:
            artefact: All of it, or the path of a file; a tensor is of uint8. From pinned memory
                the device copies it itself. It must not change before the result was checked.
            into: Tensors by name to write to, of the device and of any strides, in shape and
                type those of the artefact, with the tokens of the range. They do not overlap.
                Others are allocated.
            tensors: Names of tensors to decode, in the order in which they are needed. Default:
                all, in that of the file.
            tokens: Half-open range of tokens. Default: all.
            slots: For a paged cache: where each token of the range goes, integers that differ,
                or -1 for nowhere. `into` then has all tensors, as [slots, heads, head_dim] of any
                strides, or [slots, ...] in a layout with tokens first; the artefact has one batch.
            expected_labels: Labels that the artefact must carry with these values.
            stream: After which kernels run, and which waits for them. Default: the current one.
            wait: Whether to wait for the device.
            by_layer: Whether payloads of no group are decoded by layers, to wait for less.

        Returns:
            The tensors, and which of them the host restored.

        Raises:
            PayloadError: The artefact breaks a rule. What `into` holds is then not defined.
            DataLossError: A label is missing or differs.
            FailedPreconditionError: It needs another profile, or a CUDA graph is recorded.
            InvalidArgumentError: An argument does not fit the artefact.
            UnimplementedError: There are tensors for the host, and no client.
            KVCompressError: The client cannot restore those.
            OSError: The file cannot be read.
        """
        with self._lock, on_stream(self.device, stream):
            held = self._hold(artefact)
            found = read_artefact(held.data, self.profile, tensors)
            require_labels(found, expected_labels)
            given = _given(into, found)
            target = Target(given, None if slots is None else read_slots(slots), self.device)
            decoded = self._launch_verified(held, found, target, tokens, by_layer=by_layer)
            if wait:
                decoded.check()
        return decoded

    def _launch_verified(
        self,
        held: Held,
        found: Artefact,
        target: Target,
        tokens: Tokens | None,
        *,
        by_layer: bool,
    ) -> Decoded:
        """Launches all parts, and verifies the digests while the device works."""
        try:
            decoded = self._launch(held, found, target, tokens, by_layer=by_layer)
            verify_payloads(held.data, found)
        except BaseException as error:
            # Nothing is written any more when the caller learns of it.
            self._lanes.synchronize()
            if isinstance(error, PayloadError):
                # A digest that is wrong says more than what came of it.
                verify_payloads(held.data, found)
            raise
        return decoded

    def _launch(
        self,
        held: Held,
        found: Artefact,
        target: Target,
        tokens: Tokens | None,
        *,
        by_layer: bool,
    ) -> Decoded:
        """Launches all parts, each once it is planned; restores what the device cannot decode."""
        made: dict[str, torch.Tensor] = {}
        pending, most = self._pending(held, found, target, tokens, made, by_layer=by_layer)
        launched = []
        if pending:
            at = send(target.slots_of(most), self.device)
        for each in pending:
            part = each.plan()
            shared = [at, *(made[name] for name in part.names)]
            if held.tensor is not None and held.tensor.device == self.device:
                shared.append(held.tensor)
            event = self._lanes.launch(partial(part.decoding.launch, at), shared)
            launched.append(Launched(part.names, part.decoding, event))
        if found.fallbacks:
            made |= self._fall_back(held, found, target, tokens)
        ordered = {name: made[name] for name in found.names}
        return Decoded(ordered, found.fallbacks, found.metadata, launched, self._lanes)

    def scratch_bytes(
        self,
        artefact: _Bytes,
        *,
        tensors: Sequence[str] | None = None,
        tokens: Tokens | None = None,
        by_layer: bool = False,
    ) -> int:
        """How much memory `decode` takes on the device at most, besides its results.

        What the allocator rounds up, and tensors of the host, are not counted.
        """
        held = self._hold(artefact)
        found = read_artefact(held.data, self.profile, tensors)
        verify_payloads(held.data, found)
        # Only shapes and payloads matter here.
        target = Target({}, None, torch.device("meta"))
        pending, most = self._pending(held, found, target, tokens, {}, by_layer=by_layer)
        return sum(each.plan().decoding.scratch for each in pending) + padded(8 * most)

    def _hold(self, artefact: _Bytes) -> Held:
        """The artefact in the memory of the host."""
        if isinstance(artefact, str | PathLike):
            artefact = read_file(artefact, self.device)
        if not isinstance(artefact, torch.Tensor):
            return Held(memoryview(artefact).cast("B"), None)
        if artefact.dtype != torch.uint8 or artefact.dim() != 1:
            raise InvalidArgumentError("an artefact in a tensor is of uint8 and one dimension")
        tensor = artefact.contiguous()
        near = tensor.device == self.device or tensor.is_pinned()
        return Held(memoryview(tensor.cpu().numpy()), tensor if near else None)

    def _pending(
        self,
        held: Held,
        found: Artefact,
        target: Target,
        tokens: Tokens | None,
        made: dict[str, torch.Tensor],
        *,
        by_layer: bool,
    ) -> tuple[list[_Pending], int]:
        """What the device decodes, in the order that is wanted, and how many slots that needs.

        The tensors are added to `made`, those of a group when it is planned.
        """
        # Parts side by side share the scratch memory.
        kinds = {(entry.codec, entry.dtype, entry.layer) for entry in found.singles}
        ways = len(found.groups) + len(kinds if by_layer else {kind[:2] for kind in kinds})
        scratch = self._scratch // max(1, min(LANES, ways))
        order = {name: place for place, name in enumerate(found.order)}
        outputs = Singles(found.singles, tokens).outputs(target, made)
        most = max((output.tokens for output in outputs), default=0)
        pending = [
            _Pending(min(order[name] for name in part.names), partial(_same, part))
            for part in planned(held, outputs, scratch, by_layer=by_layer)
        ]
        for group in found.groups:
            window = token_range(tokens, group.holder)
            most = max(most, window.end - window.first)
            place = min(order[group.entries[member].name] for member in group.wanted)
            plan = partial(self._plan_group, held, group, window, scratch, target, made)
            pending.append(_Pending(place, plan))
        pending.sort(key=lambda each: each.place)
        return pending, most

    def _plan_group(
        self,
        held: Held,
        group: CodedGroup,
        window: Range,
        scratch: int,
        target: Target,
        made: dict[str, torch.Tensor],
    ) -> Planned:
        """Checks and plans a group, whose tensors are added to the others."""
        if self.profile is None:
            raise ValueError("a group needs a profile")
        holder = group.holder
        data = held.payload(holder)
        payload = read_payload(data, group.number, self.profile, group.entries)
        plan = GroupPlan(self.bases[group.number], payload, window, len(data), scratch)
        outputs, names, count = {}, [], window.end - window.first
        for member in group.wanted:
            entry = group.entries[member]
            shape = (*entry.shape[:-2], count, entry.shape[-1])
            dtype = getattr(torch, TORCH_TYPES[entry.dtype])
            made[entry.name] = target.tensor(entry.name, shape, dtype)
            outputs[member] = target.by_slots(made[entry.name])
            names.append(entry.name)
        slots = target.slots_of(count)
        decoding = GroupDecoding(plan, held, self._slots, outputs, slots, holder)
        return Planned(decoding, names)

    def _fall_back(
        self, held: Held, found: Artefact, target: Target, tokens: Tokens | None
    ) -> dict[str, torch.Tensor]:
        """Restores what the device cannot decode."""
        if self._client is None:
            name, reason = next(iter(found.fallbacks.items()))
            raise UnimplementedError(
                f"the device does not decode tensor {name!r}: {reason}; give the Decoder a client",
                tensor=name,
            )
        patterns = [glob.escape(name) for name in found.fallbacks]
        result = self._client.decompress(bytes(held.data), tensors=patterns, tokens=tokens)
        layouts = {entry.view[0].name: entry.view[0] for entry in found.entries if entry.view}
        return {
            name: target.copy(name, values, layouts.get(name))
            for name, values in result.torch_tensors().items()
        }


def _given(into: Mapping[str, torch.Tensor] | None, found: Artefact) -> dict[str, torch.Tensor]:
    """The tensors of the caller, which are all decoded."""
    given = dict(into or {})
    if unknown := sorted(set(given) - set(found.names)):
        raise InvalidArgumentError(f"`into` has {unknown[0]!r}, which is not decoded")
    return given


def _same(part: Planned) -> Planned:
    """A part that is planned already."""
    return part
