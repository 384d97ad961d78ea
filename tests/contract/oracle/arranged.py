# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A cache put into every layout by NumPy: the opposite of oracle.layouts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.source import Tensor

Array = npt.NDArray[Any]
PAGE = 16
ROLES = ("key", "value")


def _flat(x: Array) -> Array:
    """Joins the last two dimensions."""
    return x.reshape(*x.shape[:-2], -1)


def _pages(x: Array) -> Array:
    """Takes the tokens of [..., tokens, heads, head_dim] apart: [..., pages, heads, page, dim]."""
    *front, tokens, heads, dim = x.shape
    apart = x.reshape(*front, tokens // PAGE, PAGE, heads, dim)
    return np.moveaxis(apart, -2, -3)


@dataclass(frozen=True)
class Arrangement:
    """A layout, and how its tensors are made.

    Attributes:
        text: The layout as a caller declares it.
        likely: What a warning names where it is not declared.
        make: Of a cache [2, layers, tokens, heads, head_dim] less the dimensions before `t` that
            the tensors do not have.
        holds: What a tensor holds: `one` role of a layer, `both` of a layer, or `all`.
    """

    text: str
    likely: str
    make: Callable[[Array], Array]
    holds: str = "one"


def arrangements(heads: int) -> dict[str, Arrangement]:
    """Returns them by a short name, for so many heads."""
    return {
        "bhtd": Arrangement("bhtd", "", lambda x: x.swapaxes(0, 1)[None]),
        "bthd": Arrangement("bthd", "bthd", lambda x: x[None]),
        "thd": Arrangement("thd", "thd", lambda x: x),
        "td": Arrangement(f"td:heads={heads}", "td:heads=N", _flat),
        "paged": Arrangement("paged", "phsd", _pages),
        "paged2": Arrangement(
            "paged2", "2pshd", lambda x: _pages(x).swapaxes(-2, -3).copy(), holds="both"
        ),
        "pagedf": Arrangement(
            "pagedf", "phs(2d)", lambda x: np.concatenate(list(_pages(x)), -1), holds="both"
        ),
        "pages of halves": Arrangement(
            "ph(2s)d", "ph(2s)d", lambda x: np.concatenate(list(_pages(x)), -2), holds="both"
        ),
        "2thd": Arrangement("2thd", "2thd", lambda x: x, holds="both"),
        "2ltd": Arrangement(f"2ltd:heads={heads}", "2ltd:heads=N", _flat, holds="all"),
        "ltf": Arrangement(f"ltf:heads={heads}", "ltf:heads=N", lambda x: _fused(x), holds="all"),
        "1ltf": Arrangement(
            f"1ltf:heads={heads}", "1ltf:heads=N", lambda x: _fused(x)[None], holds="all"
        ),
    }


def _fused(x: Array) -> Array:
    """Each head's key and then its value: [layers, tokens, heads * 2 * head_dim]."""
    return _flat(_flat(x.transpose(1, 2, 3, 0, 4)))


@dataclass(frozen=True)
class Names:
    """What tensors are called: of one role, and of both.

    Attributes:
        one: Returns a name of layer and role.
        both: Returns a name of a layer.
    """

    one: Callable[[int, str], str] = lambda layer, part: f"layer_{layer}_{part}"
    both: Callable[[int], str] = lambda layer: f"kv_cache.{layer}"


def arrange(cache: Array, how: Arrangement, dtype: str, names: Names | None = None) -> list[Tensor]:
    """Puts a cache [2, layers, heads, tokens, head_dim] into tensors of a layout."""
    names = names or Names()
    x = cache.swapaxes(2, 3)
    arrays: Mapping[str, Array]
    if how.holds == "all":
        arrays = {"cache": x}
    elif how.holds == "both":
        arrays = {names.both(layer): x[:, layer] for layer in range(x.shape[1])}
    else:
        arrays = {
            names.one(layer, part): x[role, layer]
            for layer in range(x.shape[1])
            for role, part in enumerate(ROLES)
        }
    made = {name: how.make(array) for name, array in arrays.items()}
    return [Tensor(name, dtype, each.shape, each.tobytes()) for name, each in made.items()]
