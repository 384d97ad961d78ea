# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Layouts: where the elements of views lie in a tensor. FORMAT.md, section 2, "Layouts"."""

import itertools
import math
import re
from typing import Any, NamedTuple

import numpy.typing as npt

MAX_VIEWS = 16384
"""Most views that the layouts of an artefact may add to its tensors."""

_MAX_NAME = 512  # bytes, of a tensor with several views
_TEXT = re.compile(r"((?:\(d\+r\)|\([bl2ghpstd]{2,}\)|[bl2ghpstd1])+)(?::([a-z]=[1-9][0-9]*.*))?")
_DIMENSION = re.compile(r"\(([^)]+)\)|(.)")
_ORDER = "bghpstd"  # of a view, with two axes for heads, and pages before their tokens


class LayoutError(ValueError):
    """A layout that cannot be used.

    Attributes:
        known: Whether the text is a layout, which does not fit the tensor.
    """

    def __init__(self, message: str, *, known: bool) -> None:
        """Keeps what is wrong and the message."""
        super().__init__(message)
        self.known = known


class View(NamedTuple):
    """A tensor [batch, heads, tokens, head_dim] within another."""

    name: str
    shape: tuple[int, int, int, int]


class Where(NamedTuple):
    """Where a view is in a tensor.

    Attributes:
        sizes: Those of all axes, to which the dimensions of the tensor are cut.
        order: Of the axes: those that `at` is of, and then `axes`.
        at: The place of the view along the first of them.
        axes: The names of the others, in the order of a view.
        channels: Those of the view, along the last axis.
    """

    sizes: list[int]
    order: list[int]
    at: tuple[int, ...]
    axes: list[str]
    channels: slice


class Layout:
    """A tensor in a layout, with its views in their order."""

    def __init__(self, name: str, text: str, shape: tuple[int, ...]) -> None:
        """Reads a layout for a tensor of this name and shape.

        Raises:
            LayoutError: It is no layout, or does not fit.
        """
        match = _TEXT.fullmatch(text)
        if match is None or len(text) > 256:
            raise LayoutError(f"unknown layout {text!r}", known=False)
        dimensions = [inner or single for inner, single in _DIMENSION.findall(match[1])]
        axes = "".join(dimensions).replace("+", "").replace("1", "")
        single_tokens, paged = "t" in axes, "s" in axes or "p" in axes
        if (
            len(set(axes)) != len(axes)
            or "d" not in axes
            or not (single_tokens or "s" in axes)
            or (single_tokens and paged)
            or ("g" in axes and "h" not in axes)
            or len(dimensions) > 32
        ):
            raise LayoutError(f"unknown layout {text!r}", known=False)
        if text == "bhtd":
            raise LayoutError("the layout is the default", known=True)
        self.name, self.text, self.shape = name, text, shape
        self._dimensions: list[str] = dimensions
        self._axes = axes.replace("r", "")
        self._latent: int | None = None
        self._sizes = self._resolve(dimensions, match[2], text)
        self._outer = [axis for axis in self._axes if axis in "l2"]
        self._index = list(
            itertools.product(
                *(range(self._sizes[axis]) for axis in self._outer),
                range(1 if self._latent is None else 2),
            )
        )
        if not 0 < len(self._index) <= MAX_VIEWS or (
            len(self._index) > 1 and len(name.encode()) > _MAX_NAME
        ):
            raise LayoutError("too many views, or too long a name for them", known=True)
        self.views = [self._view(at) for at in self._index]

    def place(self, whole: npt.NDArray[Any], index: int, values: npt.NDArray[Any]) -> None:
        """Puts the flattened elements of a view where they belong in the tensor."""
        where = self.where(index)
        spread = whole.reshape(where.sizes).transpose(where.order)
        target = spread[where.at][..., where.channels]
        target[...] = values.reshape(target.shape)

    def where(self, index: int, tokens: int | None = None) -> "Where":
        """Returns where a view is in the tensor, or in one of so many tokens: pages are whole."""
        *at, part = self._index[index]
        sizes = self._with_tokens(tokens)
        inner = [axis for axis in _ORDER if axis in self._axes]
        order = [self._axes.index(axis) for axis in [*self._outer, *inner]]
        channels = slice(None)
        if self._latent is not None:
            channels = slice(self._latent, None) if part else slice(self._latent)
        return Where([sizes[axis] for axis in self._axes], order, tuple(at), inner, channels)

    @property
    def by_token(self) -> bool:
        """Whether the first dimension is tokens, and nothing else."""
        return self._dimensions[0] == "t"

    @property
    def page(self) -> int:
        """How many tokens a page has; 1 where tokens are not in pages."""
        return self._sizes["s"] if "p" in self._axes else 1

    def shape_with(self, tokens: int) -> tuple[int, ...]:
        """The shape of the tensor with so many tokens, of whole pages, instead of its own."""
        sizes = self._with_tokens(tokens)
        return tuple(
            math.prod(sizes[axis] for axis in dimension.replace("+r", "").replace("1", ""))
            for dimension in self._dimensions
        )

    def _with_tokens(self, tokens: int | None) -> dict[str, int]:
        """The sizes of the axes, with another number of tokens."""
        if tokens is None:
            return self._sizes
        if "p" in self._axes:
            return {**self._sizes, "p": tokens // self._sizes["s"]}
        return {**self._sizes, "t" if "t" in self._axes else "s": tokens}

    def _resolve(self, dimensions: list[str], sizes: str | None, text: str) -> dict[str, int]:
        """Returns the size of each axis; `d` is all channels where there are two parts."""
        told = re.findall(r"(?:^|,)([a-z])=([1-9][0-9]*)(?=,|$)", sizes or "")
        if ",".join(f"{axis}={size}" for axis, size in told) != (sizes or ""):
            raise LayoutError(f"unknown layout {text!r}", known=False)
        left = [(axis, int(size)) for axis, size in told]
        found = {}
        if len(dimensions) != len(self.shape):
            raise LayoutError(f"layout {text!r} has another rank", known=True)
        for dimension, size in zip(dimensions, self.shape, strict=True):
            named = dimension.replace("2", "").replace("1", "").replace("+r", "")
            known = 2 if "2" in dimension else 1
            for axis in named if dimension == "d+r" else named[:-1]:
                if not left or left[0][0] != axis:
                    raise LayoutError(f"layout {text!r} lacks a size", known=True)
                found[axis] = left.pop(0)[1]
                known *= found[axis]
            if dimension == "d+r":
                self._latent, found["d"] = known, size
                fits = size > known
            elif named:
                found[named[-1]] = size // known
                fits = size % known == 0
            else:
                fits = size == known
            if not fits:
                raise LayoutError(f"layout {text!r} has another shape", known=True)
        if left:
            raise LayoutError(f"layout {text!r} has sizes that the shape tells", known=True)
        return found | ({"2": 2} if "2" in self._axes else {})

    def _view(self, at: tuple[int, ...]) -> View:
        """Names and measures the view at these places of the outer axes and parts."""
        size = {axis: self._sizes.get(axis, 1) for axis in _ORDER}
        channels, marks = size["d"], []
        for axis, place in zip(self._outer, at, strict=False):
            marks.append(f"role={('key', 'value')[place]}" if axis == "2" else f"layer={place}")
        if self._latent is not None:
            marks.append(f"part={('latent', 'rope')[at[-1]]}")
            channels = (self._latent, channels - self._latent)[at[-1]]
        shape = (size["b"], size["g"] * size["h"], math.prod(size[i] for i in "pst"), channels)
        return View(f"{self.name}[{','.join(marks)}]" if marks else self.name, shape)
