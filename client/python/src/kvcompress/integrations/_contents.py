# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What an artefact says that it holds, compared with what is expected before it is restored.

An artefact of some kilobytes can be one of gigabytes of zeros. The manifest has the type and the
shape of each tensor (core/FORMAT.md, section 2); the service rejects an artefact that restores to
anything else.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kvcompress._arrays import ITEM_SIZES, TORCH_TYPES
from kvcompress._foreign_files import parse_json

Kind = tuple[str, tuple[int, ...]]
"""The type of a tensor, as torch calls it, and the shape."""

Kinds = Mapping[str, Kind]
"""By name of the tensor."""

_PREFIX_BYTES = 8
_FIELDS = 3  # of an entry of the manifest: codec or layout, type, shape
_MANIFEST = "kvcompress.tensors"
_SIZES = {torch: ITEM_SIZES[file] for file, torch in TORCH_TYPES.items()}
_SLACK = 1 << 20  # bytes of header


class NotThisError(ValueError):
    """A file that is no artefact, or not the one that is expected."""


@dataclass(frozen=True)
class Contents:
    """What the header of an artefact says; not verified.

    Attributes:
        metadata: By key.
        kinds: Of the tensors.
    """

    metadata: Mapping[str, str]
    kinds: Kinds

    def check(self, expected: Kinds) -> None:
        """Compares the tensors with those that are expected.

        Raises:
            NotThisError: They differ.
        """
        if self.kinds == expected:
            return
        names = (name for name in expected if self.kinds.get(name) != expected[name])
        name = next(names, None) or next(iter(self.kinds.keys() - expected.keys()))
        raise NotThisError(
            f"the artefact has {len(self.kinds)} tensors, and {len(expected)} are expected; "
            f"{name!r:.200} is {self.kinds.get(name)!s:.200}, and {expected.get(name)} is expected"
        )


def read_contents(artefact: bytes) -> Contents:
    """Reads the header of an artefact.

    Raises:
        NotThisError: It is none.
    """
    end = _PREFIX_BYTES + int.from_bytes(artefact[:_PREFIX_BYTES], "little")
    if end > len(artefact):
        raise NotThisError("the file ends within its header")
    try:
        header = parse_json(artefact[_PREFIX_BYTES:end])
        metadata = header.pop("__metadata__")
        entries = metadata[_MANIFEST].split(";") if header else []
        kinds = {
            name: _kind(entry.split(" ", _FIELDS))
            for name, entry in zip(header, entries, strict=True)
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotThisError(f"its header is not that of an artefact: {error!r:.200}") from error
    return Contents(metadata, kinds)


def size_of(kinds: Kinds) -> int:
    """Returns the bytes of tensors."""
    return sum(_SIZES[dtype] * math.prod(shape) for dtype, shape in kinds.values())


def most_bytes(kinds: Kinds) -> int:
    """Returns the largest size that an artefact of such tensors can have."""
    return 2 * size_of(kinds) + _SLACK


def _kind(fields: list[str]) -> Kind:
    """Reads an entry of the manifest."""
    _, dtype, shape, *_ = fields
    return TORCH_TYPES[dtype], () if shape == "-" else tuple(map(int, shape.split("x")))
