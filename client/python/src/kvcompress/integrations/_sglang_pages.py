# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The pages of SGLang's host pools, and the tensors that are in them.

A host pool keeps the KV cache of a rank in pages, and returns each as a row of values, in an order
that `--hicache-mem-layout` chooses. An artefact has tensors [1, heads, tokens, head_dim], or
[tokens, width] for latents, instead of all orders: an engine with another order can read it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.integrations._contents import Kinds

# By class of the host pool and layout the axes of a page: 2 (keys, values), layer, group of heads,
# head, slot (token of the page), channel. Others, such as those of recurrent states, hold more.
_MHA, _MLA = "MHATokenToKVPoolHost", "MLATokenToKVPoolHost"
_AXES = {
    _MHA: {
        "layer_first": "2lshd",
        "page_first": "2slhd",
        "page_first_direct": "2lshd",
        "page_head": "2hsld",
        "page_unified": "gl2shd",
    },
    _MLA: {
        "layer_first": "lsd",
        "page_first": "sld",
        "page_first_direct": "lsd",
        "page_unified": "lsd",
    },
}
_ORDER = "2lghpsd"  # of an artefact's tensors; p is the page
_UNIFIED = "page_unified"
_ELEMENT_TYPES = ("float8_e4m3fn", "float8_e5m2")
_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32}  # torch moves these, whatever the type


@dataclass(frozen=True)
class HostPages:
    """What is in a page of a host pool.

    Attributes:
        axes: Its axes, the outermost first; empty for a page that is kept as bytes.
        sizes: By axis the size.
        values: Values of a page, all together.
        stored: The type that the pool has.
        element: The type that its values are of.
        first_layer: Number of the first layer in the model.
        rope_width: Of latents: how many channels, at the end, carry a rotary embedding.
    """

    axes: str
    sizes: Mapping[str, int]
    values: int
    stored: torch.dtype
    element: torch.dtype
    first_layer: int = 0
    rope_width: int = 0

    @classmethod
    def of(cls, pool: Any, element_type: str | None) -> "HostPages":  # noqa: ANN401
        """Finds out from a host pool.

        Args:
            pool: SGLang's, of any class.
            element_type: `float8_e4m3fn` or `float8_e5m2` where the pool calls these bytes; None
                for the type that the pool has.

        Raises:
            ValueError: The pool is of a known class, and has a layout that is not known, or its
                pages do not have the size that follows from its dimensions; or there is no such
                element type.
        """
        if element_type is not None and element_type not in _ELEMENT_TYPES:
            raise ValueError(
                f"element_type is {element_type!r}, not one of {', '.join(_ELEMENT_TYPES)}"
            )
        values = int(pool.get_dummy_flat_data_page().numel())
        kind = type(pool).__name__
        if kind not in _AXES or (kind == _MLA and not _plain_latents(pool)):
            return cls("", {}, values, pool.dtype, torch.uint8)
        axes = _AXES[kind].get(pool.layout)
        if axes is None:
            raise ValueError(
                f"{kind} has the layout {pool.layout!r}; use --hicache-mem-layout with one of "
                f"{', '.join(_AXES[kind])}"
            )
        sizes = {"l": pool.layer_num, "s": pool.page_size}
        if kind == _MHA:
            groups = pool.head_group_num if "g" in axes else 1
            sizes |= {"2": 2, "h": pool.head_num // groups, "d": pool.head_dim}
            sizes |= {"g": groups} if "g" in axes else {}
        else:
            sizes |= {"d": pool.kv_cache_dim}
        if math.prod(sizes.values()) != values:
            raise ValueError(f"a page of {kind} has {values} values, and not {sizes}")
        known = element_type is not None and pool.dtype == torch.uint8
        return cls(
            axes,
            sizes,
            values,
            pool.dtype,
            getattr(torch, str(element_type)) if known else pool.dtype,
            first_layer=pool.start_layer or 0,
            rope_width=0 if kind == _MHA else pool.qk_rope_head_dim,
        )

    @property
    def by_tokens(self) -> bool:
        """Whether a range of tokens of the tensors can be restored alone."""
        return "2" in self.axes

    @property
    def heads(self) -> int:
        """Heads of a page; 1 where they are not known."""
        return self.sizes.get("h", 1) * self.sizes.get("g", 1)

    @property
    def notation(self) -> str:
        """The layout of the tensors, as `CompressArguments` has it."""
        return f"t(d+r):r={self.rope_width}" if self.axes and not self.by_tokens else "bhtd"

    @property
    def tokens(self) -> int:
        """Tokens of a page; 1 for a page of bytes, which has none."""
        return self.sizes.get("s", 1)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self.values * int(self.stored.itemsize)

    def identity(self) -> dict[str, str]:
        """Returns what artefacts depend on: all but the order of the axes."""
        known = {**self.sizes, **({"h": self.heads} if "h" in self.sizes else {})}
        sizes = ",".join(f"{axis}={known[axis]}" for axis in sorted(known) if axis != "g")
        return {
            "layers": f"{self.first_layer}+{self.sizes.get('l', 0)}",
            "page": f"{sizes or self.page_bytes};rope={self.rope_width}",
            "dtype": str(self.element).removeprefix("torch."),
        }

    def part(self, count: int) -> "HostPages":
        """Returns what is in a page of one of so many groups of heads, outermost; see `split`.

        Raises:
            ValueError: There are not as many heads, or they cannot be divided.
        """
        if count == 1:
            return self
        if not self.by_tokens or self.heads % count:
            raise ValueError(
                f"{self.heads} heads of a rank are not {count} groups: tp_lcm_size may be at most "
                "the number of the model's heads of keys, and has to divide it"
            )
        sizes = {axis: size for axis, size in self.sizes.items() if axis != "g"}
        return replace(
            self,
            axes="h" + self._others(),
            sizes={**sizes, "h": self.heads // count},
            values=self.values // count,
        )

    def split(self, page: torch.Tensor, count: int) -> list[torch.Tensor]:
        """Returns the parts of a page by groups of heads, as rows of values."""
        if count == 1:
            return [page]
        apart = page.reshape([self.sizes[axis] for axis in self.axes])
        ordered = apart.permute([self.axes.index(axis) for axis in self._by_heads()])
        return list(ordered.reshape(count, -1).unbind(0))

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the page that `split` cut into the parts."""
        if len(parts) == 1:
            return parts[0]
        order = self._by_heads()
        ordered = torch.stack(list(parts)).reshape([self.sizes[axis] for axis in order])
        return ordered.permute([order.index(axis) for axis in self.axes]).reshape(-1)

    def row(self, pool: Any, place: int) -> torch.Tensor:  # noqa: ANN401
        """Returns a page of a pool, by the first of its places, as a row of values."""
        if pool.layout == _UNIFIED:  # of which SGLang's own methods do not know
            return pool.kv_buffer[place // pool.page_size].reshape(-1)
        return pool.get_data_page(place, flat=True)

    def put(self, pool: Any, place: int, row: torch.Tensor) -> None:  # noqa: ANN401
        """Writes a row of values into a page of a pool."""
        if pool.layout == _UNIFIED:
            page = pool.kv_buffer[place // pool.page_size]
            page.copy_(row.view(page.shape))
        else:
            pool.set_from_flat_data_page(place, row)

    def kinds(self, pages: int) -> Kinds:
        """Returns type and shape of the tensors that `gather` returns for so many pages."""
        if not self.axes:
            return {"pages": ("uint8", (pages, self.page_bytes))}
        kind = (str(self.element).removeprefix("torch."), self._shape(pages))
        return dict.fromkeys(self._names(), kind)

    def gather(self, pages: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns the tensors of pages.

        Args:
            pages: Rows of values, as `get_data_page` returns them, in the order of their tokens.

        Raises:
            ValueError: A page has another size or type.
        """
        for page in pages:
            if page.numel() != self.values or page.dtype != self.stored:
                raise ValueError(
                    f"a page has {page.numel()} values of {page.dtype}, and not {self.values} of "
                    f"{self.stored}"
                )
        rows = [page.contiguous().reshape(-1) for page in pages]
        if not self.axes:
            return {"pages": torch.stack([row.view(torch.uint8) for row in rows])}
        stacked = torch.stack([row.view(_SIGNED[self.stored.itemsize]) for row in rows])
        apart = stacked.reshape(len(rows), *(self.sizes[axis] for axis in self.axes))
        ordered = apart.permute([("p" + self.axes).index(axis) for axis in self._order()])
        tokens, width = len(rows) * self.tokens, self.sizes["d"]
        tensors = {}
        for layer in range(self.sizes["l"]):
            name = f"layer_{self.first_layer + layer}"
            if not self.by_tokens:
                tensors[name] = ordered[layer].reshape(tokens, width)
                continue
            for role, end in enumerate(("key", "value")):
                states = ordered[role, layer].reshape(1, self.heads, tokens, width)
                tensors[f"{name}_{end}"] = states
        return {name: each.contiguous().view(self.element) for name, each in tensors.items()}

    def scatter(
        self, tensors: Mapping[str, torch.Tensor], wanted: Sequence[int]
    ) -> list[torch.Tensor]:
        """Returns pages, as rows of values.

        Args:
            tensors: As `gather` returned them.
            wanted: Which of the pages in them.

        Raises:
            ValueError: The tensors are not of these pages.
        """
        if not self.axes:
            whole = _checked(tensors, "pages", torch.uint8)
            if whole.shape[1:] != (self.page_bytes,):
                raise ValueError(f"pages have the shape {tuple(whole.shape)}")
            return [whole[index].view(self.stored) for index in wanted]
        names = self._names()
        parts = [_checked(tensors, name, self.element) for name in names]
        pages = parts[0].numel() // (self.values // len(parts))
        if {tuple(part.shape) for part in parts} != {self._shape(pages)} or max(wanted) >= pages:
            raise ValueError(f"layers have the shapes {[tuple(part.shape) for part in parts]}")
        signed = _SIGNED[self.stored.itemsize]
        whole = torch.stack([part.contiguous().view(signed) for part in parts])
        ordered = whole.reshape([self.sizes.get(axis, pages) for axis in self._order()])
        apart = ordered.permute([self._order().index(axis) for axis in "p" + self.axes])
        return [apart[index].contiguous().reshape(-1).view(self.stored) for index in wanted]

    def _names(self) -> list[str]:
        """Returns the names of an artefact's tensors, all keys before all values."""
        layers = range(self.first_layer, self.first_layer + self.sizes["l"])
        ends = ("_key", "_value") if self.by_tokens else ("",)
        return [f"layer_{layer}{end}" for end in ends for layer in layers]

    def _shape(self, pages: int) -> tuple[int, ...]:
        """Returns the shape of each tensor of so many pages."""
        latents = (pages * self.tokens, self.sizes["d"])
        return (1, self.heads, *latents) if self.by_tokens else latents

    def _others(self) -> str:
        """The axes that are not of heads, in their order."""
        return "".join(axis for axis in self.axes if axis not in "gh")

    def _by_heads(self) -> str:
        """The axes, those of heads outermost."""
        return ("gh" if "g" in self.axes else "h") + self._others()

    def _order(self) -> str:
        """The axes in the order of an artefact's tensors."""
        return "".join(axis for axis in _ORDER if axis in "p" + self.axes)


def _plain_latents(pool: Any) -> bool:  # noqa: ANN401
    """Returns whether a token is its latent and the rotary part behind it, and nothing packed."""
    plain = pool.kv_cache_dim == pool.kv_lora_rank + pool.qk_rope_head_dim
    return plain and not getattr(pool, "dsa_kv_cache_store_fp8", False)


def _checked(tensors: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor.

    Raises:
        ValueError: There is none of this name and type.
    """
    found = tensors.get(name)
    if found is None or found.dtype != dtype:
        raise ValueError(f"{name} is not there as {dtype}")
    return found
