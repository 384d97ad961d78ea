# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Roles and layers in the names of tensors: "Roles" in section 2 of FORMAT.md."""

import re
from typing import NamedTuple

_LAYER = r"(?P<layer>0|[1-9][0-9]{0,8})"
_PLAIN = (
    rf"layer_{_LAYER}_(?P<role>key|value)s?",
    rf"layer_{_LAYER}_(?P<role>k|v|K|V)",
    rf"layer{_LAYER}_(?P<role>key|value)",
    rf"(?P<role>key|value|k|v|K|V)_{_LAYER}",
    rf"cache_(?P<role>k|v)_l{_LAYER}",
)
_WITH_PATH = (
    rf"(?:past_key_values|present)\.{_LAYER}\.(?P<role>key|value)",
    rf"(?P<role>key|value)_cache[._]{_LAYER}",
    rf"layers\.{_LAYER}\.(?P<role>key|value)s",
    rf"(?:layers|h)\.{_LAYER}\..*\.(?P<role>k|v|key|value)_cache",
    rf"(?P<role>k|v)_buffer\.{_LAYER}",
    rf"(?:layers|h)\.{_LAYER}\..*\.(?P<role>)(?:attn|kv_cache)",
    rf"(?P<role>)(?:kv_cache|kv_buffer)\.{_LAYER}",
    rf"layer\.{_LAYER}\.(?P<role>key|value)",
    rf"(?:past|present)_(?P<role>key|value)_{_LAYER}",
    rf"(?:past|present)(?:_key_values)?_{_LAYER}_(?P<role>key|value)",
    rf"present_key_values\.{_LAYER}\.(?P<role>key|value)",
    rf"(?:past_key_values|present)\.{_LAYER}\.(?:decoder|encoder)\.(?P<role>key|value)",
    rf"(?P<role>k|v)_cache_{_LAYER}",
    rf"layers\.{_LAYER}\.(?P<role>k|v|key|value)_cache",
    rf"kv\.{_LAYER}\.(?P<role>k|v|(?:key|value)s?)",
)


class Role(NamedTuple):
    """Of a tensor: `k`, `v` or `-`, and the layer where it is known."""

    role: str
    layer: int | None

    def __str__(self) -> str:
        """Returns the field of the manifest."""
        return self.role if self.layer is None else f"{self.role}{self.layer}"


def role_of(name: str) -> Role:
    """Returns the role and the layer of a name; neither where it has several forms."""
    found = [match for form in _PLAIN if (match := re.fullmatch(form, name))]
    for begin in (0, *(place + 1 for place, letter in enumerate(name) if letter == ".")):
        for form in _WITH_PATH:
            if match := re.fullmatch(form, name[begin:], re.DOTALL):
                found.append(match)
    if len(found) != 1:
        return Role("-", None)
    return Role(found[0]["role"][:1].lower() or "-", int(found[0]["layer"]))
