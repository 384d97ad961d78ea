# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How pages of an engine's cache lie in memory, and the tensors that are in them.

An engine keeps the keys and values of a layer in pages of some tokens, in an order that its
attention kernels like. An artefact has tensors [1, heads, tokens, head_dim] in its place:
codecs know these, a range of tokens can be restored alone, and an engine with another order
can read them.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # type: ignore[import-not-found,unused-ignore]

Bytes = npt.NDArray[np.uint8]

_ORDER = "2rhcpksd"  # role, rank, head, chunk, page, kernel block, token, channel
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
            ValueError: An axis is there twice, or not known, or pages have no room for it all.
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
        """Takes what `dataclasses.asdict` gave, through JSON."""
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
        return f"t(d+r):r={self.rope_width}" if self.axes == "sd" else "bhtd"

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

    @property
    def _sizes(self) -> dict[str, int]:
        """Sizes of all axes of a page."""
        sizes = {"k": self.kernel_blocks, "h": self.heads, "2": 2}
        return {**sizes, "s": self.tokens, "d": self.width}

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

    def gather(self, view: Bytes, chunks: Sequence[int]) -> dict[str, torch.Tensor]:
        """Gives the tensors of chunks.

        Args:
            view: All chunks, [chunks, bytes].
            chunks: Which, in the order of their tokens.
        """
        tensors = {}
        rows = np.asarray(chunks)
        for layer, offset in zip(self._numbers(), self.offsets, strict=True):
            parts = [view[rows, part] for part in self._parts(offset)]
            pages = np.stack(parts, axis=1).reshape(len(rows), self.ranks, self.pages, -1)
            if not self.axes:
                tensors[f"layer_{layer}"] = torch.from_numpy(pages.reshape(len(rows), -1))
                continue
            content = np.ascontiguousarray(pages[..., : self._content_bytes]).view(self._item)
            shape = [self._sizes[axis] for axis in self.axes]
            values = content.reshape(*content.shape[:3], *shape)
            ordered = np.ascontiguousarray(values.transpose(self._to_order()))
            if self.keys_transposed:
                ordered[0] = ordered[0].reshape(self._transposed(ordered)).swapaxes(-1, -2)
            tensors.update(self._named(layer, ordered))
        return tensors

    def scatter(
        self,
        tensors: Mapping[str, torch.Tensor],
        wanted: Sequence[int],
        view: Bytes,
        chunks: Sequence[int],
    ) -> None:
        """Writes chunks.

        Args:
            tensors: As `gather` gave them.
            wanted: Which of the chunks in them.
            view: All chunks, [chunks, bytes].
            chunks: Where to write these.

        Raises:
            ValueError: The tensors are not of this layout. Nothing is written.
        """
        layers = [self._array(tensors, layer) for layer in self._numbers()]
        rows = np.asarray(chunks)
        for array, offset in zip(layers, self.offsets, strict=True):
            if self.axes:
                cut = array[self._at_chunks(wanted)]
                if self.keys_transposed:
                    cut[0] = cut[0].swapaxes(-1, -2).reshape(cut[0].shape)
                cut = cut.transpose(np.argsort(self._to_order()))
                content = np.ascontiguousarray(cut).view(np.uint8)
                content = content.reshape(len(rows), self.ranks, self.pages, -1)
                padding = self.page_bytes - self._content_bytes
                pages = np.pad(content, [(0, 0)] * 3 + [(0, padding)]) if padding else content
            else:
                pages = array[np.asarray(wanted)]
            parts = pages.reshape(len(rows), self.ranks, -1)
            for rank, part in enumerate(self._parts(offset)):
                view[rows, part] = parts[:, rank]

    def _transposed(self, ordered: npt.NDArray[Any]) -> tuple[int, ...]:
        """The shape of keys as they are in memory."""
        return (*ordered.shape[1:-2], self.width, self.tokens)

    def _parts(self, offset: int) -> Iterator[slice]:
        """Gives by rank which bytes of a chunk are a layer's."""
        for rank in range(self.ranks):
            begin = rank * self.rank_bytes + offset
            yield slice(begin, begin + self.pages * self.page_bytes)

    def _order(self) -> str:
        """The axes in the order of an artefact's tensors."""
        return "".join(axis for axis in _ORDER if axis in "crp" + self.axes)

    def _to_order(self) -> list[int]:
        """The permutation from the axes of pages to those of tensors."""
        return [("crp" + self.axes).index(axis) for axis in self._order()]

    def _at_chunks(self, wanted: Sequence[int]) -> tuple[Any, ...]:
        """An index that takes some chunks of an array in the order of tensors."""
        before = (slice(None),) * self._order().index("c")
        return (*before, np.asarray(wanted))

    def _named(self, layer: int, array: npt.NDArray[Any]) -> dict[str, torch.Tensor]:
        """Gives the tensors that an array in the order of tensors is made of."""
        dtype = getattr(torch, self.dtype)
        signed = array.view(np.dtype(f"i{array.itemsize}"))
        if not self.by_tokens:
            return {f"layer_{layer}": torch.from_numpy(signed).view(dtype).view(-1, self.width)}
        flat = torch.from_numpy(signed).view(dtype)
        states = flat.reshape(2, 1, self.ranks * self.heads, -1, self.width)
        return {f"layer_{layer}_key": states[0], f"layer_{layer}_value": states[1]}

    def _array(self, tensors: Mapping[str, torch.Tensor], layer: int) -> npt.NDArray[Any]:
        """Gives a layer's tensors as the array that `_named` took.

        Raises:
            ValueError: They are not there, or of another type or shape.
        """
        ends = ("_key", "_value") if self.by_tokens else ("",)
        parts = [tensors.get(f"layer_{layer}{end}") for end in ends]
        dtype = getattr(torch, self.dtype)
        found = [part for part in parts if part is not None and part.dtype == dtype]
        if len(found) != len(parts):
            raise ValueError(f"layer {layer} is not there as {self.dtype}")
        if not self.axes:
            return np.asarray(found[0].numpy())
        shape = [self._sizes.get(axis, -1) for axis in self._order()]
        shape[self._order().index("r")] = self.ranks
        shape[self._order().index("p")] = self.pages
        whole = torch.stack(found).contiguous().view(torch.uint8).numpy().view(self._item)
        if whole.shape[-1] != self.width or whole.size % math.prod(map(abs, shape)):
            raise ValueError(f"layer {layer} has the shape {tuple(found[0].shape)}")
        if self.by_tokens and found[0].shape[1] != self.ranks * self.heads:
            raise ValueError(f"layer {layer} has {found[0].shape[1]} heads")
        return np.asarray(whole.reshape(shape))

    def _numbers(self) -> list[int]:
        """By layer its number in the model, where names tell it, else in the group."""
        found = [_NUMBER.findall(name) for name in self.layers]
        numbers = [int(each[0]) for each in found if len(each) == 1]
        if len(set(numbers)) != len(self.layers):
            return list(range(len(self.layers)))
        return numbers
