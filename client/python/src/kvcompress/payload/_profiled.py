# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What headers say of `klt-profile` and `lossless-profile`, section 5 of FORMAT.md.

Their payloads are those of groups of tensors, and need a profile: the service decodes them, and
`kvcompress.gpu` those of `klt-profile`. This reader does not.
"""

import math
import re
from collections.abc import Sequence

from ._codec import Array, Entry, PayloadError
from ._dtypes import NUMBERS

PROFILE_KEY = "kvcompress.profile"
NO_DIGEST = "-"
"""In the manifest, for an empty payload of a group."""
SAME_CODEC = "="
"""In the manifest, for a view with the codec of the view before it."""

_ID = re.compile(r"(sha256:[0-9a-f]{64}) (.+)", re.DOTALL)
_MAX_LABEL = 256  # bytes


class Profiled:
    """Knows the parameters and the size bound, and decodes nothing.

    Attributes:
        dtypes: The types that the codec takes.
    """

    fixed = False

    def __init__(self, dtypes: Sequence[str], decoders: str) -> None:
        """Takes the types, and the words for what decodes the payloads."""
        self.dtypes, self._decoders = dtypes, decoders

    def accepts(self, parameters: str) -> bool:
        """Whether this is the name of a preset."""
        return re.fullmatch("[a-z0-9-]{1,32}", parameters) is not None

    def largest(self, parameters: str, shape: tuple[int, ...], dtype: str, role: str) -> int:
        """Returns what a tensor adds to the bound of all payloads of this codec together."""
        return 16 * math.prod(shape) + 65536

    def decode(self, payload: bytes, entry: Entry) -> Array:
        """Refuses."""
        raise PayloadError(
            f"{entry.codec} needs its profile: restore it with {self._decoders}",
            "UNIMPLEMENTED",
            entry.name,
        )


PROFILED = {
    "klt-profile": Profiled(NUMBERS, "kvcompress.gpu or the service"),
    "lossless-profile": Profiled(("F16", "BF16"), "the service"),
}
"""The codecs that need a profile, by name."""


def is_profiled(codec: str) -> bool:
    """Whether the codec's field of the manifest names a codec that needs a profile."""
    return codec.partition(":")[0] in PROFILED


def read_profile_id(text: str | None, entries: Sequence[Entry]) -> tuple[str, str] | None:
    """Reads digest and label of the profile, and checks the sizes of the payloads that need it.

    Args:
        text: What the header says; None where it says nothing.
        entries: All tensors and views of the artefact.

    Raises:
        PayloadError: The text has another form, tensors and text do not ask for each other, or
            the payloads of groups are larger than their tensors allow.
    """
    shared = [entry for entry in entries if is_profiled(entry.codec)]
    if (text is not None) != bool(shared):
        raise PayloadError("the header names a profile without tensors that need one, or not")
    most = 0
    for entry in shared:
        codec = PROFILED[entry.codec.partition(":")[0]]
        most += codec.largest(entry.parameters, entry.shape, entry.dtype, entry.role)
    if sum(entry.end - entry.begin for entry in shared) > most:
        raise PayloadError("the payloads of groups are larger than their tensors allow")
    if text is None:
        return None
    parts = _ID.fullmatch(text)
    if parts is None or len(parts[2].encode()) > _MAX_LABEL:
        raise PayloadError("the header names a profile in another form")
    return parts[1], parts[2]
