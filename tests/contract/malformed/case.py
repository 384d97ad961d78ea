# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a case of the corpus is."""

from dataclasses import dataclass

from malformed.build import entry, tensors

SOUND = tensors(x=entry())


@dataclass(frozen=True)
class Case:
    """A file that must be refused.

    Attributes:
        name: What is wrong.
        data: The file.
        words: A regular expression that the message matches.
        recognised: One for the message of kv-compress, where that knows what the file is; empty
            where it says what the service does.
        code: Canonical code of the error.
        tensor: Name the error reports for the tensor; None when it is about the file.
        offset: Position the error reports; None when any will do, or none.
        element: Index the error reports for the element; None when there is none.
        library_refuses: Whether the reference library refuses the file as well.
    """

    name: str
    data: bytes
    words: str
    code: str = "INVALID_ARGUMENT"
    tensor: str | None = None
    offset: int | None = None
    element: int | None = None
    library_refuses: bool = True
    recognised: str = ""
