# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The pages of an engine's cache in the memory of its device, as the tensors of an artefact.

The kernels of kvcompress.gpu take a paged cache as [slots, heads, head_dim] of any strides, and one
of latents as [slots, channels]. In a page with heads outermost the tokens of a head follow one
another, and those of the next page are elsewhere: slots are then counted in steps from one token to
the next, and not all of them are one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.integrations._pages import PageLayout

NOWHERE = -1
"""The number of a page whose tokens are not wanted."""
_PLACE = 3  # axes of a cell that say which token: page, kernel block, token


@dataclass(frozen=True)
class SlotView:
    """Tensors of an artefact in pages, whose tokens have the same slots.

    Attributes:
        sizes: Kernel blocks of a page, and their tokens.
        strides: Slots from one page to the next, and from one kernel block.
        tensors: By name, [slots, heads, head_dim], or [slots, channels] of latents; of slots that
            are no token's, nothing is said.
    """

    sizes: tuple[int, int]
    strides: tuple[int, int]
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def slots(self, pages: Sequence[int]) -> torch.Tensor:
        """Returns the slots of the tokens of pages, one page after the other; -1 for NOWHERE."""
        numbers = np.asarray(pages, np.int64)[:, None, None]
        blocks, tokens = (np.arange(size) for size in self.sizes)
        found = numbers * self.strides[0] + blocks[:, None] * self.strides[1] + tokens
        return torch.from_numpy(np.where(numbers == NOWHERE, NOWHERE, found).ravel())


class DevicePages:
    """The pages of a group of layers; a page is a block of the engine.

    Attributes:
        layout: Of a page.
        device: That has them.
        views: Of all tensors by slots: one, where a page has keys and values in the same order;
            none where slots do not tell where tokens are.
    """

    def __init__(self, layout: PageLayout, layers: Sequence[torch.Tensor]) -> None:
        """Takes the pages of each layer.

        Args:
            layout: With keys and values, or latents, of one rank.
            layers: By layer its pages, int8 [pages, bytes]; pages may be apart.
        """
        self.layout, self.device = layout, layers[0].device
        # [pages, kernel blocks, tokens, heads, channels]; latents have no heads
        self._cells: dict[str, torch.Tensor] = {}
        names = iter(layout.kinds(1))
        sizes = {"k": layout.kernel_blocks, "s": layout.tokens, "h": layout.heads}
        sizes["d"] = layout.width
        axes = "kshd" if layout.by_tokens else "ksd"
        shape = tuple(sizes[axis] for axis in axes)
        for _, pages in zip(layout.layers, layers, strict=True):
            flat = pages.view(getattr(torch, layout.dtype))
            for role in range(2 if layout.by_tokens else 1):
                first, steps = layout.steps(role)
                strides = (flat.stride(0), *(steps.get(axis, 0) for axis in axes))
                start = flat.storage_offset() + first
                self._cells[next(names)] = flat.as_strided((len(flat), *shape), strides, start)
        self.views = self._by_slots()

    def read(self, pages: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns copies in host memory, as the tensors of an artefact, of the tokens of pages."""
        at = torch.tensor(pages, device=self.device)
        found = {}
        for name, cell in self._cells.items():
            rows = cell[at].flatten(0, _PLACE - 1)
            if self.layout.by_tokens:
                rows = rows.transpose(0, 1).unsqueeze(0)
            found[name] = rows.contiguous().cpu()
        return found

    def write(self, tensors: Mapping[str, torch.Tensor], pages: Sequence[int]) -> None:
        """Writes the tensors of an artefact, whose tokens are those of pages, and waits for it."""
        wanted = torch.tensor([page != NOWHERE for page in pages])
        at = torch.tensor([page for page in pages if page != NOWHERE], device=self.device)
        for name, cell in self._cells.items():
            rows = tensors[name]
            if self.layout.by_tokens:
                rows = rows[0].transpose(0, 1)
            cell[at] = rows.reshape(len(pages), *cell.shape[1:])[wanted].to(self.device)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def _by_slots(self) -> list[SlotView]:
        """Returns the views of all tensors; none where slots do not tell where tokens are."""
        views: dict[tuple[int, ...], SlotView] = {}
        for name, cell in self._cells.items():
            page, block, token, *rest = cell.stride()
            if page % token or block % token:
                return []
            view = SlotView(tuple(cell.shape[1:_PLACE]), (page // token, block // token))
            view = views.setdefault(cell.stride()[:_PLACE], view)
            last = [size - 1 for size in cell.shape[:_PLACE]]
            most = last[0] * view.strides[0] + last[1] * view.strides[1] + last[2] + 1
            size, strides = (most, *cell.shape[_PLACE:]), (token, *rest)
            view.tensors[name] = cell.as_strided(size, strides, cell.storage_offset())
        return list(views.values())
