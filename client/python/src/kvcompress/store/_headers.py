# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which blocks a run has, from the header of its artefact; not verified."""

import os

from kvcompress._foreign_files import ForeignFileError, open_foreign, parse_json

BLOCKS_KEY = "blocks"  # in the metadata: hashes in the order of the tokens
_PREFIX_BYTES = 8
_MOST_BYTES = 1 << 26  # of a header
_MOST_FILE_BYTES = 1 << 62


class NoArtefactError(ValueError):
    """A file that is no artefact: empty, cut off, or something else."""


def blocks_of(path: str) -> tuple[str, ...]:
    """Returns the blocks of an artefact.

    Raises:
        NoArtefactError: It is none, or does not say.
        OSError: It cannot be read.
    """
    metadata = metadata_of(path)
    blocks = tuple(str(metadata.get(BLOCKS_KEY, "")).split(","))
    # They become parts of paths.
    if not all(block.isascii() and block.isalnum() for block in blocks):
        raise NoArtefactError(f"{path!r} does not say which blocks it has")
    return blocks


def metadata_of(path: str) -> dict[str, str]:
    """Returns the metadata of an artefact, labels among it.

    Raises:
        NoArtefactError: It is none.
        OSError: It cannot be read.
    """
    try:
        with open_foreign(path, _MOST_FILE_BYTES, unnoticed=True) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_PREFIX_BYTES), "little")
            if not 0 < length <= min(_MOST_BYTES, size - _PREFIX_BYTES):
                raise NoArtefactError(f"{path!r} ends within its header")
            header = parse_json(file.read(length))
        metadata = header["__metadata__"]
    except (ForeignFileError, KeyError, TypeError, ValueError) as error:
        raise NoArtefactError(f"{path!r} is no artefact: {error!r:.200}") from error
    if not isinstance(metadata, dict):
        raise NoArtefactError(f"{path!r} has no metadata")
    return metadata
