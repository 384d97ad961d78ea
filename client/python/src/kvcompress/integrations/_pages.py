# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How pages of an engine's cache lie in memory, and the tensors that are in them.

An engine keeps the keys and values of a layer in pages of some tokens, in an order that its
attention kernels like. An artefact has tensors [1, heads, tokens, head_dim] in its place:
codecs know these, a range of tokens can be restored alone, and an engine with another order
can read them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.integrations._contents import Kinds

Bytes = npt.NDArray[np.uint8]

_ORDER = "rhcpksd"  # rank, head, chunk, page, kernel block, token, channel
_ENDS = ("_key", "_value")  # of names; role 0 and 1
_NUMBER = re.compile(r"(?<![0-9])[0-9]{1,9}(?![0-9])")


@dataclass(frozen=True)
class PageLayout:
    """How a chunk, that is, a row of bytes, holds the pages of a group of layers.

    A chunk has a part of `rank_bytes` for each rank; in it each layer has `pages` pages one
    behind the other.

    Attributes:
        layers: Names of the layers.
        offsets: By layer, where its first page begins in a rank's part; bytes.
        page_bytes: From one page of a layer to the next; the content may end before.
        pages: Pages of a layer in a chunk.
        tokens: Tokens of a kernel block, the axis `s`.
        heads: Heads of a rank, the axis `h`.
        width: Channels of a head, the axis `d`.
        dtype: What torch calls the type of the values.
        axes: The axes of a page, the outermost first: of `k` kernel blocks, `h` heads, `2` keys
            and values, `s` and `d`; `h2sd` for vLLM on CPUs, `hs2d` for FlashAttention, `sd`
            for latents. Empty: not known. Such pages are kept as bytes, which no codec changes.
        kernel_blocks: Size of the axis `k`.
        ranks: Ranks that have a part in a chunk, each with heads of its own.
        rank_bytes: Bytes of a rank's part.
        rope_width: Of latents: how many channels, at the end, carry a rotary embedding.
        keys_transposed: Whether the bytes of keys are [d, s] where `axes` says [s, d].
    """

    layers: tuple[str, ...]
    offsets: tuple[int, ...]
    page_bytes: int
    pages: int
    tokens: int
    heads: int = 1
    width: int = 1
    dtype: str = "uint8"
    axes: str = ""
    kernel_blocks: int = 1
    ranks: int = 1
    rank_bytes: int = 0
    rope_width: int = 0
    keys_transposed: bool = False

    def __post_init__(self) -> None:
        """Checks sizes.

        Raises:
            ValueError: An axis is there twice, or not known, or pages have no space for it all.
        """
        if not set(self.axes) <= set("kh2sd") or len(set(self.axes)) != len(self.axes):
            raise ValueError(f"{self.axes!r} are not axes of a page: some of k, h, 2, s, d, once")
        if self.axes and not {"s", "d"} <= set(self.axes):
            raise ValueError(f"the axes {self.axes!r} lack s or d")
        if self.keys_transposed and not (self.by_tokens and self.axes.endswith("sd")):
            raise ValueError(f"keys in the axes {self.axes} cannot be transposed")
        if len(self.layers) != len(self.offsets):
            raise ValueError(f"{len(self.layers)} layers have {len(self.offsets)} offsets")
        if self._content_bytes > self.page_bytes:
            raise ValueError(
                f"{self._content_bytes} bytes of axes {self.axes} in pages of {self.page_bytes}"
            )
        if "2" not in self.axes and self.axes and self.ranks > 1:
            raise ValueError(f"pages with the axes {self.axes} are of one rank, not {self.ranks}")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "PageLayout":
        """Takes what `dataclasses.asdict` returned, through JSON."""
        lists = {name: tuple(fields[name]) for name in ("layers", "offsets")}
        return cls(**{**fields, **lists})

    @property
    def chunk_tokens(self) -> int:
        """Tokens of a chunk."""
        return self.pages * self.kernel_blocks * self.tokens

    @property
    def by_tokens(self) -> bool:
        """Whether a range of tokens of the tensors can be restored alone."""
        return "2" in self.axes

    @property
    def notation(self) -> str:
        """The layout of the tensors, as `CompressArguments` has it."""
        latent = self.width - self.rope_width
        return f"t(d+r):d={latent}" if self.axes == "sd" else "bhtd"

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk that are pages of these layers."""
        return self.ranks * len(self.layers) * self.pages * self.page_bytes

    def check_row(self, row_bytes: int) -> None:
        """Checks the layout against the size of chunks.

        Raises:
            ValueError: Pages lie beyond a rank's part, or that beyond the chunk.
        """
        end = max(self.offsets, default=0) + self.pages * self.page_bytes
        if end > self.rank_bytes or self.ranks * self.rank_bytes > row_bytes:
            raise ValueError(
                f"{self.ranks} parts of {self.rank_bytes} bytes, with pages up to {end}, "
                f"are not chunks of {row_bytes}"
            )

    def steps(self, role: int) -> tuple[int, dict[str, int]]:
        """Returns where keys (role 0) or values (1) lie in a page, in elements.

        Returns:
            The first one, and by axis the distance from one to the next.
        """
        steps, step = {}, 1
        for axis, size in reversed(self._page_sizes.items()):
            steps[axis], step = step, step * size
        first = role * steps.get("2", 0)
        if self.keys_transposed and role == 0:
            steps |= {"s": 1, "d": self.tokens}
        return first, steps

    @property
    def _page_sizes(self) -> dict[str, int]:
        """Sizes of the axes of a page, the outermost first; its bytes where they are not known."""
        return {axis: self._sizes[axis] for axis in self.axes or "b"}

    @property
    def _sizes(self) -> dict[str, int]:
        """Sizes of all axes of a page."""
        sizes = {"k": self.kernel_blocks, "h": self.heads, "2": 2}
        return {**sizes, "s": self.tokens, "d": self.width, "b": self.page_bytes}

    @property
    def _item(self) -> "np.dtype[Any]":
        """Unsigned numbers as wide as the values."""
        return np.dtype(f"u{getattr(torch, self.dtype).itemsize}")

    @property
    def _content_bytes(self) -> int:
        """Bytes of a page that mean something."""
        if not self.axes:
            return self.page_bytes
        return math.prod(self._sizes[axis] for axis in self.axes) * int(self._item.itemsize)

    def kinds(self, chunks: int) -> Kinds:
        """Returns type and shape of the tensors that `gather` returns for so many chunks."""
        values = math.prod(self._sizes[axis] for axis in self.axes.replace("2", "") or "b")
        values *= self.ranks * self.pages * chunks
        shape: tuple[int, ...] = (values // self.width, self.width)
        if self.by_tokens:
            heads = self.ranks * self.heads
            shape = (1, heads, values // (heads * self.width), self.width)
        elif not self.axes:
            shape = (chunks, values // chunks)
        return {
            f"layer_{layer}{end}": (self.dtype if self.axes else "uint8", shape)
            for layer in self._numbers()
            for end in self._ends
        }

    def gather(self, view: Bytes, chunks: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns the tensors of chunks.

        Args:
            view: All chunks, [chunks, bytes], contiguous.
            chunks: Which, in the order of their tokens.
        """
        rows = np.asarray(chunks)
        return {name: self._tensor(place[rows]) for name, place in self._places(view)}

    def scatter(
        self,
        tensors: Mapping[str, torch.Tensor],
        wanted: Sequence[int],
        view: Bytes,
        chunks: Sequence[int],
    ) -> None:
        """Writes chunks.

        Args:
            tensors: As `gather` returned them.
            wanted: Which of the chunks in them.
            view: All chunks, [chunks, bytes], contiguous.
            chunks: Where to write these.

        Raises:
            ValueError: The tensors are not of this layout. Nothing is written.
        """
        places = self._places(view)
        arrays = [self._array(tensors, name, place.shape[1:]) for name, place in places]
        most = min(len(array) for array in arrays)
        if max(wanted) >= most:
            raise ValueError(f"chunk {max(wanted)} is wanted of tensors with {most}")
        rows = np.asarray(chunks)
        follow = list(wanted) == list(range(wanted[0], wanted[0] + len(wanted)))
        taken = slice(wanted[0], wanted[-1] + 1) if follow else np.asarray(wanted)
        for array, (_, place) in zip(arrays, places, strict=True):
            place[rows] = array[taken]

    @property
    def _order(self) -> str:
        """The axes in the order of an artefact's tensors, without keys and values."""
        if not self.axes:
            return "crpb"
        return "".join(axis for axis in _ORDER if axis in "crp" + self.axes)

    @property
    def _ends(self) -> tuple[str, ...]:
        """How the names of a layer's tensors end."""
        return _ENDS if self.by_tokens else ("",)

    @property
    def _chunk_axis(self) -> int:
        """Where chunks are among the axes of an artefact's tensors."""
        return self._order.index("c")

    def _places(self, view: Bytes) -> list[tuple[str, npt.NDArray[Any]]]:
        """Returns for each tensor, by name, where its values lie in the memory of all chunks.

        The axes are those of the tensor, apart, with chunks outermost. NumPy checks that all of it
        is within `view`.
        """
        kind = self._item
        sizes = {"c": len(view), "r": self.ranks, "p": self.pages, **self._page_sizes}
        outer = {"c": view.strides[0], "r": self.rank_bytes, "p": self.page_bytes}
        order = "c" + self._order.replace("c", "")
        shape = [sizes[axis] for axis in order]
        result = []
        for layer, offset in zip(self._numbers(), self.offsets, strict=True):
            for role, end in enumerate(self._ends):
                first, steps = self.steps(role)
                strides = {axis: step * kind.itemsize for axis, step in steps.items()} | outer
                place: npt.NDArray[Any] = np.ndarray(
                    shape,
                    kind,
                    view,
                    offset + first * kind.itemsize,
                    [strides[axis] for axis in order],
                )
                result.append((f"layer_{layer}{end}", place))
        return result

    def _tensor(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """Returns the tensor of an array of its axes, with chunks outermost."""
        array = np.ascontiguousarray(np.moveaxis(array, 0, self._chunk_axis))
        if not self.axes:
            return torch.from_numpy(array.reshape(len(array), -1))
        signed = array.view(np.dtype(f"i{array.itemsize}"))
        flat = torch.from_numpy(signed).view(getattr(torch, self.dtype))
        if not self.by_tokens:
            return flat.view(-1, self.width)
        return flat.view(1, self.ranks * self.heads, -1, self.width)

    def _array(
        self, tensors: Mapping[str, torch.Tensor], name: str, chunk: Sequence[int]
    ) -> npt.NDArray[Any]:
        """Returns a tensor as an array of its axes, with chunks outermost.

        Args:
            tensors: By name.
            name: Which.
            chunk: The sizes of the axes of a chunk.

        Raises:
            ValueError: It is not there, or of another type or shape.
        """
        found = tensors.get(name)
        if found is None or found.dtype != getattr(torch, self.dtype):
            raise ValueError(f"{name} is not there as {self.dtype}")
        shape = tuple(found.shape)
        if self.by_tokens:
            fits = (*shape[:2], *shape[3:]) == (1, self.ranks * self.heads, self.width)
        else:
            fits = shape[1:] == (self.width if self.axes else math.prod(chunk),)
        if not fits or found.numel() % math.prod(chunk):
            raise ValueError(f"{name} has the shape {shape}")
        bits = found.contiguous().view(torch.uint8).numpy().view(self._item)
        apart = bits.reshape([*chunk[: self._chunk_axis], -1, *chunk[self._chunk_axis :]])
        return np.moveaxis(apart, self._chunk_axis, 0)

    def _numbers(self) -> list[int]:
        """By layer its number in the model, where names show it, else in the group."""
        found = [_NUMBER.findall(name) for name in self.layers]
        numbers = [int(each[0]) for each in found if len(each) == 1]
        if len(set(numbers)) != len(self.layers):
            return list(range(len(self.layers)))
        return numbers
