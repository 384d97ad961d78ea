# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where the elements of payloads go, as `_elements` describes it to kernels."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.payload._codec import Entry
from kvcompress.payload._ecsq import matrix
from kvcompress.payload._layouts import Where

MOST = 1 << 30
"""Heads, tokens and channels that kernels count in 32 bits are below this."""

_ROW = 1 << 20  # elements of a row of a tensor that has no tokens


_Table = npt.NDArray[np.int64]


class Range(NamedTuple):
    """Tokens of a batch, half open."""

    first: int
    end: int


class Output(NamedTuple):
    """A payload that is decoded by itself, and where its elements go.

    Attributes:
        entry: Of the payload.
        place: As `_elements` describes it.
        tokens: How long the list of slots is that the place needs.
    """

    entry: Entry
    place: list[int]
    tokens: int

    @property
    def split(self) -> bool:
        """Whether heads or tokens have two strides."""
        return self.place[7] > 1 or self.place[10] > 1


def geometry(entry: Entry) -> tuple[int, int, int, int]:
    """Batches, heads, tokens and channels of a tensor, as the codec or kernels cut it."""
    shape = entry.shape
    if len(shape) in (3, 4):
        return (shape[0] if len(shape) == 4 else 1, shape[-3], shape[-2], shape[-1])
    if entry.codec.startswith(("ecsq:", "klt:")):
        return (1, *matrix(shape))
    return (1, 1, -(-math.prod(shape) // _ROW), _ROW)


def whole_output(entry: Entry, tensor: torch.Tensor, tokens: Range) -> Output:
    """The output of a tensor [batches, heads, slots, channels], or of one that lies in C order."""
    _, heads, count, channels = geometry(entry)
    if len(entry.shape) in (3, 4):
        batch, head, token, channel = tensor.stride()
    else:
        batch, head, token, channel = 0, count * channels, channels, 1
    strides = [batch, head, head, 1, token, token, 1, channel]
    place = [tensor.data_ptr(), heads, count, channels, *strides, *tokens]
    return Output(entry, place, tokens.end - tokens.first)


def view_of(tensor: torch.Tensor, where: Where) -> torch.Tensor:
    """The view of a layout within its tensor, with the axes of `where`."""
    # Cutting dimensions is a view for any strides.
    return tensor.view(where.sizes).permute(where.order)[where.at][..., where.channels]


def view_output(entry: Entry, tensor: torch.Tensor, tokens: Range) -> Output:
    """The output of a view within a tensor of its layout, which has the tokens of the range."""
    if entry.view is None:
        raise ValueError("the entry is of no view")
    layout, index = entry.view
    # Of slots there may be more than tokens.
    count = tensor.shape[0] if layout.by_token else tokens.end - tokens.first
    where = layout.where(index, count)
    view = view_of(tensor, where)
    size = dict(zip(where.axes, view.shape, strict=True))
    stride = dict(zip(where.axes, view.stride(), strict=True))
    token = stride["t" if "t" in stride else "s"]
    head = stride.get("h", 0)
    strides = [stride.get("b", 0), stride.get("g", head), head, size["h"] if "g" in size else 1]
    strides += [stride.get("p", token), token, size["s"] if "p" in size else 1, stride["d"]]
    _, heads, count, channels = geometry(entry)
    place = [view.data_ptr(), heads, count, channels, *strides, *tokens]
    return Output(entry, place, tokens.end - tokens.first)


def within(output: Output, begins: _Table, ends: _Table) -> npt.NDArray[np.bool_]:
    """Which runs of the flattened payload have an element in the range of tokens."""
    tokens, channels, first, end = (output.place[i] for i in (2, 3, 12, 13))

    def before(row: _Table) -> _Table:
        """Rows of the range before a row."""
        return row // tokens * (end - first) + np.clip(row % tokens - first, 0, end - first)

    return before((ends - 1) // channels + 1) > before(begins // channels)


def cut_by_size(sizes: Sequence[int], most: int) -> Iterator[tuple[slice, int]]:
    """Cuts a sequence into parts of at most such a size, and of one item at least.

    Args:
        sizes: Of its items.
        most: Of a part.

    Yields:
        The items of each part, and its size.
    """
    first = size = 0
    for number, own in enumerate(sizes):
        if size and size + own > most:
            yield slice(first, number), size
            first, size = number, 0
        size += own
    if first < len(sizes):
        yield slice(first, len(sizes)), size
