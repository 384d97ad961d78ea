# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The views of layouts, each spelt out in NumPy: FORMAT.md, section 2, "Layouts"."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.source import ITEM_SIZE, Tensor

Array = npt.NDArray[Any]
Views = Iterator[tuple[str, Array]]  # the manifest's role field, and [batch, heads, tokens, dim]
ROLES = ((0, "k"), (1, "v"))


def _tokens(x: Array, heads: int) -> Array:
    """Takes [tokens, heads * dim] apart."""
    return x.reshape(len(x), heads, x.shape[-1] // heads).transpose(1, 0, 2)[None]


def _pages(x: Array) -> Array:
    """Joins the pages of [pages, heads, tokens, dim]."""
    return x.transpose(1, 0, 2, 3).reshape(1, x.shape[1], x.shape[0] * x.shape[2], x.shape[3])


def _stacked(x: Array) -> Views:
    for role, mark in ROLES:
        for layer in range(x.shape[1]):
            yield f"{mark}{layer}", _tokens(x[role, layer], 2)


def _fused(x: Array) -> Views:
    for layer, each in enumerate(x):
        apart = each.reshape(len(each), 2, 2, each.shape[-1] // 4)
        for role, mark in ROLES:
            yield f"{mark}{layer}", apart[:, :, role].transpose(1, 0, 2)[None]


def _halves(x: Array, axis: int) -> Views:
    for half, (_, mark) in zip(np.split(x, 2, axis), ROLES, strict=True):
        yield mark, _pages(half)


@dataclass(frozen=True)
class Layout:
    """A layout, with a shape that it fits.

    Attributes:
        text: Its one form.
        shape: A shape of a small tensor in it.
        views: Returns the views of a tensor.
    """

    text: str
    shape: tuple[int, ...]
    views: Callable[[Array], Views]


LAYOUTS = {
    "bthd": Layout("bthd", (2, 17, 3, 8), lambda x: iter([("-", x.transpose(0, 2, 1, 3))])),
    "thd": Layout("thd", (17, 3, 8), lambda x: iter([("-", x.transpose(1, 0, 2)[None])])),
    "hdt": Layout("hdt", (3, 8, 17), lambda x: iter([("-", x.transpose(0, 2, 1)[None])])),
    "td:heads=3": Layout("t(hd):h=3", (17, 24), lambda x: iter([("-", _tokens(x, 3))])),
    "2ltd:heads=2": Layout("2lt(hd):h=2", (2, 3, 17, 32), _stacked),
    "ltf:heads=2": Layout("lt(h2d):h=2", (3, 17, 64), _fused),
    "1ltf:head_dim=16": Layout("1lt(h2d):h=2", (1, 3, 17, 64), lambda x: _fused(x[0])),
    "paged": Layout("phsd", (5, 3, 4, 8), lambda x: iter([("-", _pages(x))])),
    "2 p s h d": Layout(
        "2pshd",
        (2, 5, 4, 3, 8),
        lambda x: iter((mark, _pages(x[role].transpose(0, 2, 1, 3))) for role, mark in ROLES),
    ),
    "pagedf": Layout("phs(2d)", (5, 3, 4, 16), lambda x: _halves(x, 3)),
    "ph(2s)d": Layout("ph(2s)d", (5, 3, 8, 8), lambda x: _halves(x, 2)),
    "mla:rope=8": Layout(
        "t(d+r):d=32",
        (17, 40),
        lambda x: iter([("-", x[None, None, :, :32]), ("k", x[None, None, :, 32:])]),
    ),
}
"""By the name that a caller passes."""


def split(source: Tensor, name: str) -> tuple[list[tuple[str, Tensor]], list[Array]]:
    """Returns a tensor's views with their roles, and for each where its elements are in it."""
    size = ITEM_SIZE[source.dtype]
    elements = np.frombuffer(source.data, f"V{size}")
    places = np.arange(elements.size).reshape(source.shape)
    views, where = [], []
    for role, place in LAYOUTS[name].views(places):
        data = elements[place.ravel()].tobytes()
        views.append((role, Tensor(source.name, source.dtype, place.shape, data)))
        where.append(place.ravel())
    return views, where


def join(source: Tensor, parts: list[bytes], where: list[Array]) -> bytes:
    """Puts the elements of views back to their places in a tensor."""
    size = ITEM_SIZE[source.dtype]
    elements = np.zeros(len(source.data) // size, f"V{size}")
    for part, place in zip(parts, where, strict=True):
        elements[place] = np.frombuffer(part, f"V{size}")
    return elements.tobytes()
