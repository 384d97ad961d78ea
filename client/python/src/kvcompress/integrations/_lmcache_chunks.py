# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""LMCache's chunks: what their dimensions are, what identifies them, how they are read and written.

LMCache passes memory objects with one tensor for each group of layers, and does not say what
the dimensions are: it marks all of them `UNDEFINED`. What it does promise is how many planes
there are. K and V apart are two planes, [2, layers, tokens, width]. One plane is either MLA or
K and V fused for each head, [layers, tokens, width] where the engine moves the data, and
[1, layers, tokens, width] where LMCache does. The configuration has to say which.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.integrations._contents import Kinds
from kvcompress.integrations._weights import cached_commit, declared, weights_of

Form = Literal["kv", "cpu_attn", "mla"]

_KEY = ("model", "chunk", "rank", "group", "salt")  # by the names of labels
_NOTHING: Mapping[str, str] = {}
_SPLIT = 2  # planes
_ELEMENT_TYPES = ("float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Layout:
    """How chunks hold keys and values. Declared, never guessed.

    Attributes:
        form: What the engine keeps. `kv`: keys and values of heads, apart or, since vLLM 0.26,
            fused for each head as [key, value]. `cpu_attn`: as vLLM's CPU backend has them, for
            each block and head first all keys, transposed, and then all values. `mla`: latents,
            followed by the part of the keys with a rotary embedding.
        head_dim: Width of a head, for `kv` and `cpu_attn`.
        rope_dim: Width of the part with the rotary embedding, for `mla`.
        block_tokens: Tokens of a block of the engine, for `cpu_attn`.
        element_type: `float8_e4m3fn` or `float8_e5m2` where the engine keeps these and LMCache
            calls them bytes; None for the type that LMCache names.
    """

    form: Form
    head_dim: int | None = None
    rope_dim: int | None = None
    block_tokens: int | None = None
    element_type: str | None = None

    def __post_init__(self) -> None:
        """Checks that all is said that has to be, and no more.

        Raises:
            ValueError: It is not.
        """
        if self.form not in get_args(Form):
            raise ValueError(f"layout is {self.form!r}, not one of {', '.join(get_args(Form))}")
        needed = {"kv": ("head_dim",), "mla": ("rope_dim",)}
        for name in ("head_dim", "rope_dim", "block_tokens"):
            value = getattr(self, name)
            wanted = name in needed.get(self.form, ("head_dim", "block_tokens"))
            if wanted != (value is not None) or (value is not None and value < 1):
                rule = "needs a positive" if wanted else "takes no"
                raise ValueError(f"layout {self.form!r} {rule} {name}")
        if self.element_type is not None and self.element_type not in _ELEMENT_TYPES:
            raise ValueError(
                f"element_type is {self.element_type!r}, not one of {', '.join(_ELEMENT_TYPES)}"
            )

    def notation(self, shape: tuple[int, ...]) -> str:
        """Returns the layout of a tensor that `arrange` returns, in the notation of FORMAT.md.

        Args:
            shape: Of LMCache's tensor.

        Raises:
            ValueError: The tensor cannot have this layout.
        """
        rank, width = len(shape), shape[-1] if shape else 0
        split = rank == 4 and shape[0] == _SPLIT and self.form != "mla"
        if not split and not (rank == 3 or (rank == 4 and shape[0] == 1)):
            raise ValueError(f"a chunk of shape {tuple(shape)} is not of layout {self.form!r}")
        if self.form == "mla":
            if width <= (self.rope_dim or 0):
                raise ValueError(f"{width} channels have no latent by rope_dim {self.rope_dim}")
            return f"{'1' * (rank - 3)}lt(d+r):r={self.rope_dim}"
        unit = (self.head_dim or 0) * (1 if split else 2)
        if width == 0 or width % unit:
            raise ValueError(
                f"{width} channels are not whole heads: {'' if split else 'twice '}"
                f"head_dim {self.head_dim}"
            )
        if self.form == "cpu_attn":
            if split or shape[-2] % (self.block_tokens or 1):
                raise ValueError(
                    f"a chunk of shape {tuple(shape)} has no fused blocks of {self.block_tokens} "
                    "tokens"
                )
            return "lph2sd"
        if split:
            return f"2ltd:head_dim={self.head_dim}"
        return f"{'1' * (rank - 3)}ltf:head_dim={self.head_dim}"

    def arrange(self, states: torch.Tensor) -> torch.Tensor:
        """Returns LMCache's tensor as the service takes it: as it is, or for `cpu_attn` a copy."""
        if self.element_type is not None and states.dtype == torch.uint8:
            states = states.view(getattr(torch, self.element_type))
        if self.form != "cpu_attn":
            return states
        *_, layers, tokens, width = states.shape
        block, head = self.block_tokens or 0, self.head_dim or 0
        heads = width // (2 * head)
        blocks = states.reshape(layers, tokens // block, block, heads, 2 * head).transpose(2, 3)
        keys, values = blocks.reshape(layers, tokens // block, heads, 2, head * block).unbind(3)
        return torch.stack(
            [
                keys.unflatten(3, (head, block)).transpose(3, 4),
                values.unflatten(3, (block, head)),
            ],
            dim=3,
        )

    def rearrange(self, restored: torch.Tensor, states: torch.Tensor) -> None:
        """Writes what `arrange` returned, restored, into LMCache's tensor."""
        # torch copies float8 as bytes or not at all, by version.
        plain = torch.uint8 if states.element_size() == 1 else states.dtype
        states, restored = states.view(plain), restored.view(plain)
        if self.form == "cpu_attn":
            layers, pages, heads, _, block, head = restored.shape
            halves = torch.empty(layers, pages, heads, 2, head * block, dtype=plain)
            keys, values = halves.unbind(3)
            keys.unflatten(3, (head, block)).copy_(restored[:, :, :, 0].transpose(3, 4))
            values.unflatten(3, (block, head)).copy_(restored[:, :, :, 1])
            restored = halves.view(layers, pages, heads, block, 2 * head).transpose(2, 3)
            states = states.unflatten(-1, (heads, 2 * head)).unflatten(-3, (pages, block))
        states.copy_(restored)


def check(memory: Any, layout: Layout) -> str:  # noqa: ANN401
    """Returns the layout of the tensors of a memory object, for the service.

    Raises:
        ValueError: A tensor cannot have the layout, or they have different ones.
    """
    notations = {layout.notation(tuple(shape)) for shape in memory.get_shapes()}
    if len(notations) != 1:
        raise ValueError(f"the groups of a chunk have the layouts {sorted(notations)}, not one")
    return notations.pop()


def read(memory: Any, layout: Layout) -> tuple[dict[str, torch.Tensor], str]:  # noqa: ANN401
    """Returns the tensors of a memory object by name, and their layout for the service.

    Raises:
        ValueError: A tensor cannot have the layout, or they have different ones.
    """
    notation = check(memory, layout)
    tensors = enumerate(_tensors(memory))
    return {f"group_{index}": layout.arrange(each) for index, each in tensors}, notation


def kinds_of(memory: Any, layout: Layout) -> Kinds:  # noqa: ANN401
    """Returns type and shape of the tensors that `read` returns.

    Raises:
        ValueError: As there.
    """
    check(memory, layout)
    empty = (layout.arrange(each.to("meta")) for each in _tensors(memory))
    return {
        f"group_{index}": (str(each.dtype).removeprefix("torch."), tuple(each.shape))
        for index, each in enumerate(empty)
    }


def write(restored: dict[str, torch.Tensor], memory: Any, layout: Layout) -> None:  # noqa: ANN401
    """Writes restored tensors, of the kinds of `kinds_of`, into a memory object."""
    for index, states in enumerate(_tensors(memory)):
        layout.rearrange(restored[f"group_{index}"], states)


def labels_of(key: Any, identity: Mapping[str, str] = _NOTHING) -> dict[str, str]:  # noqa: ANN401
    """Returns the labels that bind an artefact to its chunk's key and the weights of the model.

    Args:
        key: LMCache's.
        identity: What the configuration says that chunks depend on in addition.
    """
    labels = {
        "lmcache.model": key.model_name,
        "lmcache.chunk": key.chunk_hash.hex(),
        "lmcache.rank": str(key.kv_rank),
        "lmcache.group": str(key.object_group_id),
        "lmcache.salt": key.cache_salt,
        **{f"lmcache.{name}": value for name, value in declared(identity).items()},
    }
    weights = _weights(key.model_name)
    return labels if weights is None else {**labels, "lmcache.weights": weights}


def key_of(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of the key that an artefact's metadata is bound to.

    Raises:
        KeyError: It is bound to none.
        ValueError: A field is no such value.
    """
    own = {name: metadata[f"kvcompress.label.lmcache.{name}"] for name in _KEY}
    return {
        "chunk_hash": bytes.fromhex(own["chunk"]),
        "model_name": own["model"],
        "kv_rank": int(own["rank"]),
        "object_group_id": int(own["group"]),
        "cache_salt": own["salt"],
    }


@functools.cache
def _weights(model: str) -> str | None:
    """Names the weights of a model, as they are when it is first seen; None where nothing says.

    LMCache knows the name alone. Of a name on the hub it is the commit of `main` that the hub's
    cache has on this machine.
    """
    if Path(model).is_dir():
        return weights_of(model)
    commit = cached_commit(model)
    return None if commit is None else f"commit:{commit}"


def _tensors(memory: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401
    """Yields the tensors of a memory object."""
    for index in range(len(memory.get_shapes())):
        yield memory.get_tensor(index)
