# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the codecs of the offline reader share.

A codec is a module of this package with a class that fits `Codec`, and an entry in
`CODECS` of `kvcompress.payload`.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ._dtypes import from_bits, round_to_bits
from ._layouts import Layout

Array = npt.NDArray[Any]


class PayloadError(ValueError):
    """An artefact that cannot be read.

    Attributes:
        code: `DATA_LOSS` for damage, `FAILED_PRECONDITION` for a safetensors file that is no
            artefact, `UNIMPLEMENTED` for a later format version, a codec not known here, or a
            shape that NumPy cannot hold.
        tensor: Name of the tensor concerned, or None.
    """

    def __init__(self, message: str, code: str = "DATA_LOSS", tensor: str | None = None) -> None:
        """Keeps the cause and the message."""
        super().__init__(message if tensor is None else f"{message} (tensor {tensor!r})")
        self.code = code
        self.tensor = tensor


class Entry(NamedTuple):
    """One tensor of an artefact, or one view of a tensor in a layout.

    `begin` and `end` are byte positions in the file. `view` is None for a tensor, else the
    layout and the view's index in it; `name` and `shape` are then those of the view.
    """

    name: str
    codec: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    layer: int | None
    digest: str
    begin: int
    end: int
    view: "tuple[Layout, int] | None" = None

    @property
    def parameters(self) -> str:
        """What follows the colon in the codec's field; empty without a colon."""
        return self.codec.partition(":")[2]


class Codec(Protocol):
    """How the payload of a tensor is read. FORMAT.md, section 5, says what it holds."""

    def accepts(self, parameters: str) -> bool:
        """Whether the codec has these parameters."""

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns the size bound of a payload, in bytes."""

    fixed: bool
    """Whether every payload is exactly as large as its bound."""

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Decodes a payload to the flattened values, in the type of the source.

        Raises:
            PayloadError: The payload breaks a rule of the codec.
        """


def from_float(values: npt.NDArray[np.float32], dtype: str) -> Array:
    """Rounds to the source type, to nearest even and to its finite values."""
    return from_bits(round_to_bits(values, dtype), dtype)
