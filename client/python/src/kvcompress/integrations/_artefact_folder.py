# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A folder of artefacts that are found by the hashes of the blocks in them.

A block alone is too small for a good ratio: one of 16 tokens takes a third more than the same
tokens within 512. So an artefact holds a run of blocks, and each block has a symbolic link to
it under its own hash. A look-up is one `stat`; where an artefact has been deleted, its links
lead nowhere, and its blocks are not there. Processes may share a folder: what appears is whole.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcompress._client import Client
from kvcompress.integrations._exchange import Exchange
from kvcompress.options import CompressArguments

_BLOCKS = "blocks"  # in metadata: hashes in the order of the tokens; in labels: their digest
_HEADER_LENGTH = 8
_SUFFIX = ".kvc.safetensors"


class NotThisError(ValueError):
    """A file that is no artefact, or not the one that its link says it is."""


@dataclass(frozen=True)
class Found:
    """An artefact that has been read.

    Attributes:
        data: Its bytes.
        blocks: The hashes of the blocks in it, as hexadecimal digits; not verified yet.
    """

    data: bytes
    blocks: tuple[str, ...]


class ArtefactFolder:
    """Saves runs of blocks, and gives them back by block. Thread safe.

    Attributes:
        path: Of this model, type and layout; others are next to it.
    """

    def __init__(self, root: Path, name: str, identity: Mapping[str, str]) -> None:
        """Makes the folder.

        Args:
            root: Where models' folders are.
            name: For people, such as the model's; part of the folder's name.
            identity: What blocks depend on other than their hashes. Bound to each artefact.

        Raises:
            OSError: It cannot be made.
        """
        self._identity = dict(identity)
        text = json.dumps(self._identity, sort_keys=True)
        readable = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[-80:]
        self.path = root / f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self._artefacts = self.path / "artefacts"
        self._artefacts.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), (self.path / "identity.json").open("x") as file:
            file.write(json.dumps(self._identity, indent=2, sort_keys=True) + "\n")

    def holds(self, block: str) -> bool:
        """Tells whether there is an artefact with a block; it may turn out to be damaged."""
        return self._link(block).exists()

    def save(
        self,
        client: Client,
        blocks: Sequence[str],
        tensors: Mapping[str, Any],
        options: CompressArguments,
        timeout: float,
        first_token: int | None = None,
    ) -> int:
        """Compresses a run of blocks into an artefact, and links it.

        Args:
            client: Calls the service.
            blocks: Their hashes, as hexadecimal digits.
            tensors: What they hold.
            options: Of the call.
            timeout: Seconds.
            first_token: The position of their first token in the text, where that is known.

        Returns:
            The bytes of the artefact.

        Raises:
            KVCompressError: The call failed.
            OSError: Nothing can be written. Blocks that are not linked are not there.
        """
        digest = _digest(blocks)
        artefact = self._artefacts / digest[:2] / f"{digest[:40]}-{secrets.token_hex(4)}{_SUFFIX}"
        artefact.parent.mkdir(exist_ok=True)
        wanted: CompressArguments = {**options, "labels": self._labels(blocks)}
        metadata = {_BLOCKS: ",".join(blocks)}
        if first_token is not None:
            metadata["first_token"] = str(first_token)
        client.compress(
            tensors,
            artefact,
            metadata=metadata,
            timeout=timeout,
            **wanted,
        )
        for block in blocks:
            link = self._link(block)
            link.parent.mkdir(parents=True, exist_ok=True)
            unfinished = link.with_name(f".{link.name}-{secrets.token_hex(4)}")
            unfinished.symlink_to(os.path.relpath(artefact, link.parent))
            unfinished.replace(link)
        return artefact.stat().st_size

    def artefact_of(self, block: str) -> Path | None:
        """Gives the artefact that a block's link leads to; None when there is no link."""
        link = self._link(block)
        with suppress(OSError):
            return Path(os.path.normpath(link.parent / link.readlink()))
        return None

    def read(self, artefact: Path) -> Found:
        """Reads an artefact, once: what is found in these bytes is what is verified.

        Raises:
            NotThisError: It does not say which blocks it has.
            OSError: It cannot be read.
        """
        data = artefact.read_bytes()
        try:
            length = int.from_bytes(data[:_HEADER_LENGTH], "little")
            header = json.loads(data[_HEADER_LENGTH : _HEADER_LENGTH + length])
            blocks = tuple(str(header["__metadata__"][_BLOCKS]).split(","))
        except (ValueError, KeyError, TypeError) as error:
            raise NotThisError("it does not say which blocks it has") from error
        with suppress(OSError):  # as where the folder cannot be written
            os.utime(artefact)
        return Found(data, blocks)

    def restore(
        self, exchange: Exchange, found: Found, tokens: tuple[int, int] | None, timeout: float
    ) -> Mapping[str, Any]:
        """Gives the torch tensors of an artefact, after every check.

        Args:
            exchange: Calls the service.
            found: What has been read.
            tokens: Half-open range of tokens to restore; None for all.
            timeout: Seconds.

        Raises:
            KVCompressError: The call failed; DataLossError for what is damaged, or was made for
                other blocks, another model, type or layout.
        """
        return exchange.restore(
            found.data, timeout, tokens=tokens, expected_labels=self._labels(found.blocks)
        )

    def forget(self, blocks: Iterable[str]) -> None:
        """Deletes links, so that their blocks are not there until they are saved again."""
        for block in blocks:
            with suppress(OSError):
                self._link(block).unlink()

    def _link(self, block: str) -> Path:
        """Where a block's link is."""
        return self.path / "blocks" / block[:3] / block

    def _labels(self, blocks: Sequence[str]) -> dict[str, str]:
        """What is bound to an artefact."""
        return {**self._identity, _BLOCKS: _digest(blocks)}


def _digest(blocks: Iterable[str]) -> str:
    """Gives the identity of a run of blocks."""
    return hashlib.sha256(",".join(blocks).encode()).hexdigest()
