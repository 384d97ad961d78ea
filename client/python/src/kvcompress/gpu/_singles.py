# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Payloads that are decoded one by one: their tensors, and launches of those of one form."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._arrays import TORCH_TYPES
from kvcompress.errors import InvalidArgumentError
from kvcompress.gpu._ecsq_decoding import EcsqDecoding
from kvcompress.gpu._groups import tensor_name
from kvcompress.gpu._integers import Form, IntegersDecoding
from kvcompress.gpu._klt_decoding import KltDecoding
from kvcompress.gpu._lossless import LosslessDecoding
from kvcompress.gpu._place import Output, Range, geometry, view_output, whole_output
from kvcompress.gpu._target import Target
from kvcompress.gpu._upload import Held
from kvcompress.payload import PayloadError
from kvcompress.payload._codec import Entry

Tokens = tuple[int, int]
_CODED = ("ecsq", "klt")
"""Codecs that share their first two modes."""


class Decoding(Protocol):
    """Payloads that are decoded together."""

    @property
    def scratch(self) -> int:
        """Bytes on the device, besides what the elements take."""

    def launch(self, slots: torch.Tensor) -> None:
        """Launches the kernels; slots, i64, says where tokens go, -1 for nowhere."""

    def finish(self) -> bool:
        """Waits; returns whether something was written again.

        Raises:
            PayloadError: A payload breaks a rule. What the tensors hold is not defined.
        """


def token_range(tokens: Tokens | None, entry: Entry) -> Range:
    """The tokens to decode of a tensor [batches, heads, tokens, head_dim], or of a view.

    Raises:
        InvalidArgumentError: The tensor does not have them.
    """
    whole = Range(0, entry.shape[-2])
    if tokens is None:
        return whole
    if not 0 <= tokens[0] < tokens[1] <= whole.end:
        raise InvalidArgumentError(
            f"tokens {tokens[0]}:{tokens[1]} are not within the {whole.end} of tensor "
            f"{entry.name!r}",
            tensor=entry.name,
            limit=whole.end,
        )
    return Range(*tokens)


class Singles:
    """The tensors of payloads that are decoded one by one.

    Args:
        entries: Of the payloads.
        tokens: The range; None for all.

    Raises:
        PayloadError: A payload is too small for its shape.
        InvalidArgumentError: A tensor does not have the range.
    """

    def __init__(self, entries: Iterable[Entry], tokens: Tokens | None) -> None:
        """Finds the tokens of each."""
        self._windows: list[tuple[Entry, Range]] = []
        for entry in entries:
            _require_size(entry)
            self._windows.append((entry, _window(tokens, entry)))

    def outputs(self, target: Target, tensors: dict[str, torch.Tensor]) -> list[Output]:
        """Makes what the payloads are decoded to.

        Args:
            target: That of the call.
            tensors: To which those that are written are added by name.

        Raises:
            InvalidArgumentError: The caller's tensors do not take them.
        """
        outputs = []
        for entry, window in self._windows:
            name = tensor_name(entry)
            if name not in tensors:
                tensors[name] = _tensor(entry, window, target)
            if entry.view is not None:
                outputs.append(view_output(entry, tensors[name], window))
                continue
            tensor = tensors[name]
            if len(entry.shape) in (3, 4):
                tensor = target.by_slots(tensor)
            outputs.append(whole_output(entry, tensor, window))
        return outputs


class Planned(NamedTuple):
    """Payloads that are decoded together, and the names of the tensors that they write to."""

    decoding: Decoding
    names: list[str]


def planned(
    held: Held, outputs: Sequence[Output], scratch: int, *, by_layer: bool
) -> list[Planned]:
    """Plans how payloads are decoded, those of each layer together or all.

    Args:
        held: The artefact.
        outputs: What each payload is decoded to, in the order in which it is wanted.
        scratch: Bytes of the buffers whose size goes with the tokens decoded at once.
        by_layer: Whether layers are decoded one by one.

    Raises:
        PayloadError: A payload breaks a rule.
    """
    if not by_layer:
        return _planned(held, outputs, scratch)
    layers: dict[int | None, list[Output]] = {}
    for output in outputs:
        layers.setdefault(output.entry.layer, []).append(output)
    return [plan for layer in layers.values() for plan in _planned(held, layer, scratch)]


def _planned(held: Held, outputs: Iterable[Output], scratch: int) -> list[Planned]:
    """Plans how payloads are decoded.

    Args:
        held: The artefact.
        outputs: What each payload is decoded to.
        scratch: Bytes of the buffers whose size goes with the tokens decoded at once.

    Raises:
        PayloadError: A payload breaks a rule.
    """
    integers: dict[Form, list[Output]] = {}
    coded: dict[str, list[Output]] = {}
    joint: dict[str, list[Output]] = {}
    lossless: dict[str, list[Output]] = {}
    for output in outputs:
        entry = output.entry
        name, dtype = entry.codec.partition(":")[0], entry.dtype
        if entry.begin == entry.end:
            if math.prod(entry.shape):
                raise PayloadError(f"the payload of {entry.codec} is empty", tensor=entry.name)
        elif name == "klt" and held.data[entry.begin] == 2:
            joint.setdefault(dtype, []).append(output)
        elif name in _CODED and held.data[entry.begin] != 0:
            coded.setdefault(dtype, []).append(output)
        elif name == "lossless":
            lossless.setdefault(dtype, []).append(output)
        else:
            fallback = name in _CODED
            bits, group = (8, 64) if fallback else (int(name[3:]), int(entry.parameters))
            integers.setdefault(Form(bits, group, fallback, dtype), []).append(output)
    found: list[tuple[Decoding, list[Output]]] = []
    for form, parts in integers.items():
        found.append((IntegersDecoding(form, held, parts), parts))
    for parts in coded.values():
        found.append((EcsqDecoding(held, parts, scratch), parts))
    for parts in joint.values():
        found.append((KltDecoding(held, parts, scratch), parts))
    for parts in lossless.values():
        found.append((LosslessDecoding(held, parts, scratch), parts))
    return [
        Planned(decoding, list(dict.fromkeys(tensor_name(each.entry) for each in parts)))
        for decoding, parts in found
    ]


def _require_size(entry: Entry) -> None:
    """Refuses shapes that a payload cannot have, before memory is taken for them."""
    count, size = math.prod(entry.shape), entry.end - entry.begin
    # No block of these has more elements, or so few bytes; `lossless` expands to 64 times.
    bounds = {"ecsq": size * 2**18 // 24, "klt": size * 2**20 // 28, "lossless": 64 * size}
    most = bounds.get(entry.codec.partition(":")[0])
    if most is not None and count > most:
        raise PayloadError(
            f"the payload of {entry.codec} has {size} bytes, too few for {count} elements",
            tensor=entry.name,
        )


def _window(tokens: Tokens | None, entry: Entry) -> Range:
    """The tokens of the range, where the tensor has any."""
    if tokens is None:
        return Range(0, geometry(entry)[2])
    if len(entry.shape) != 4:
        raise InvalidArgumentError(
            f"tensor {entry.name!r} is {list(entry.shape)}: a range of tokens needs [batch, heads, "
            "tokens, head_dim], or a layout; leave `tokens` out, or the tensor",
            tensor=entry.name,
        )
    window = token_range(tokens, entry)
    if entry.view is not None and any(edge % entry.view[0].page for edge in window):
        raise InvalidArgumentError(
            f"tokens {window.first}:{window.end} of tensor {tensor_name(entry)!r} do not begin and "
            f"end with a page of {entry.view[0].page} tokens",
            tensor=tensor_name(entry),
            limit=entry.view[0].page,
        )
    return window


def _tensor(entry: Entry, window: Range, target: Target) -> torch.Tensor:
    """The tensor that a payload, or one of its views, is decoded to."""
    dtype = getattr(torch, TORCH_TYPES[entry.dtype])
    count = window.end - window.first
    if entry.view is not None:
        layout, _ = entry.view
        return target.tensor(layout.name, layout.shape_with(count), dtype, layout)
    if len(entry.shape) in (3, 4):
        return target.tensor(entry.name, (*entry.shape[:-2], count, entry.shape[-1]), dtype)
    tensor = target.tensor(entry.name, entry.shape, dtype)
    if not tensor.is_contiguous():
        raise InvalidArgumentError(
            f"`into` has a tensor for {entry.name!r} that does not lie in C order: only those of "
            "[batch, heads, tokens, head_dim] and of layouts may have other strides",
            tensor=entry.name,
        )
    return tensor
