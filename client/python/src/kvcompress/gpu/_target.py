# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The tensors that a call writes to: those of the caller, or new ones."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import InvalidArgumentError
from kvcompress.payload._layouts import Layout

Slots = npt.NDArray[np.int64]


def read_slots(slots: torch.Tensor) -> Slots:
    """Reads the slots of tokens on the host.

    Raises:
        InvalidArgumentError: They are no integers of one dimension from -1 on, or not distinct.
    """
    if slots.dtype not in (torch.int32, torch.int64) or slots.dim() != 1:
        raise InvalidArgumentError("slots are int32 or int64 of one dimension")
    found: Slots = slots.cpu().numpy().astype(np.int64)
    used = found[found != -1]
    if (used < 0).any() or len(np.unique(used)) != len(used):
        raise InvalidArgumentError("slots are -1, or from 0 on and each there once")
    return found


class Target(NamedTuple):
    """Where elements go.

    Attributes:
        into: Tensors of the caller by name.
        slots: Of the tokens in a paged cache; None for tensors of the artefact's shapes.
        device: Of all tensors.
    """

    into: Mapping[str, torch.Tensor]
    slots: Slots | None
    device: torch.device

    def tensor(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, layout: Layout | None = None
    ) -> torch.Tensor:
        """The tensor for elements of a shape, whose tokens are those of the range.

        Args:
            name: Its name.
            shape: Of the elements.
            dtype: Theirs.
            layout: That they are in; None for [batch, heads, tokens, head_dim].

        Raises:
            InvalidArgumentError: That of the caller does not take them, or is missing.
        """
        if self.slots is not None:
            shape = self._paged(name, shape, layout)
        elif name not in self.into:
            return torch.empty(shape, dtype=dtype, device=self.device)
        tensor = self.into[name]
        found = (tuple(tensor.shape), tensor.dtype, tensor.device)
        if found != (shape, dtype, self.device):
            raise InvalidArgumentError(
                f"`into` has {list(found[0])} of {found[1]} on {found[2]} for tensor {name!r}, "
                f"which needs {list(shape)} of {dtype} on {self.device}",
                tensor=name,
            )
        return tensor

    def _paged(self, name: str, shape: tuple[int, ...], layout: Layout | None) -> tuple[int, ...]:
        """The shape of a paged cache for elements of this shape."""
        if layout is None:
            fits = len(shape) in (3, 4) and shape[:-3] in ((), (1,))
            rows = (shape[-2], shape[-3], shape[-1]) if fits else shape
        else:
            fits, rows = layout.by_token, shape
        if name not in self.into or not fits:
            raise InvalidArgumentError(
                f"slots need a tensor of `into` for {name!r}, and one batch of [heads, tokens, "
                f"head_dim] or a layout with tokens first, not {list(shape)}",
                tensor=name,
            )
        most, found = int(self.slots_of(rows[0]).max(initial=-1)), self.into[name].shape
        if len(found) != len(rows) or found[0] <= most:
            raise InvalidArgumentError(
                f"`into` has {list(found)} for tensor {name!r}: a paged cache is [slots, heads, "
                f"head_dim], or in a layout [slots, ...], here of {most + 1} slots at least",
                tensor=name,
            )
        return (found[0], *rows[1:])

    def slots_of(self, tokens: int) -> Slots:
        """Where each token goes along the third dimension of `by_slots`."""
        if self.slots is None:
            return np.arange(tokens)
        if len(self.slots) != tokens:
            raise InvalidArgumentError(
                f"there are {len(self.slots)} slots for the {tokens} tokens of the range",
                limit=tokens,
            )
        return self.slots

    def by_slots(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view [batches, heads, slots, head_dim] of what `tensor` returned."""
        if self.slots is not None:
            return tensor.transpose(0, 1).unsqueeze(0)
        return tensor.unsqueeze(0) if tensor.dim() == 3 else tensor

    def copy(self, name: str, values: torch.Tensor, layout: Layout | None) -> torch.Tensor:
        """Copies elements that the host restored to the device."""
        tensor = self.tensor(name, tuple(values.shape), values.dtype, layout)
        if self.slots is None:
            return tensor.copy_(values)
        used = self.slots >= 0
        if layout is None:
            values = values.reshape(values.shape[-3:]).transpose(0, 1)
        rows = values[torch.from_numpy(used)].to(self.device)
        tensor[torch.from_numpy(self.slots[used]).to(self.device)] = rows
        return tensor
