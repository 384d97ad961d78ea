# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Artefacts of an engine's blocks in a store: made by the service, verified when they are loaded.

A block alone is too small for a good ratio: one of 16 tokens takes a third more than the same
tokens within 512. So an artefact holds a run of blocks, any of which can be restored alone. Whoever
else may write to the folder can make blocks disappear, and no more: see _foreign_files.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcompress._client import Client
from kvcompress.errors import KVCompressError
from kvcompress.integrations._contents import (
    Kinds,
    NotThisError,
    most_bytes,
    read_contents,
    size_of,
)
from kvcompress.integrations._exact import compress
from kvcompress.integrations._exchange import Exchange
from kvcompress.integrations._hopeless import HOPELESS_SECONDS, Hopeless, is_lasting
from kvcompress.integrations._time_outs import to_restore, to_save
from kvcompress.options import CompressArguments
from kvcompress.store import ArtefactStore, digest_of

_BLOCKS = "blocks"  # in metadata: hashes in the order of the tokens; in labels: their digest
_MORE_BLOCKS = 8  # times those of an own artefact: engines that share a folder may differ
_SAVING = "saving"


@dataclass(frozen=True)
class Content:
    """What a folder's artefacts hold.

    Attributes:
        kinds: Returns the tensors of so many blocks.
        most_blocks: Blocks that this process puts into an artefact, at most.
    """

    kinds: Callable[[int], Kinds]
    most_blocks: int


@dataclass(frozen=True)
class Found:
    """An artefact that has been read.

    Attributes:
        path: Where it is.
        data: Its bytes.
        blocks: The hashes of the blocks in it, as hexadecimal digits; not verified yet.
    """

    path: Path
    data: bytes
    blocks: tuple[str, ...]


class ArtefactFolder:
    """Saves runs of blocks, and restores them by block. Thread safe.

    Attributes:
        runs: The collection of the store; another model, type or layout has another.
        content: What artefacts hold.
    """

    def __init__(
        self, store: ArtefactStore, name: str, identity: Mapping[str, str], content: Content
    ) -> None:
        """Takes a collection of a store.

        Args:
            store: Where models' folders are.
            name: For people, such as the model's; part of the folder's name.
            identity: What blocks depend on other than their hashes. Bound to each artefact.
            content: What artefacts hold; nothing else is restored.
        """
        self._store, self._identity, self.content = store, dict(identity), content
        self.runs = store.runs(name, identity)
        self._hopeless = Hopeless()

    def holds(self, block: str) -> bool:
        """Returns whether there is an artefact with a block; it may turn out to be damaged."""
        return self.runs.holds(block)

    def is_there(self, artefact: Path) -> bool:
        """Returns whether there is an artefact; one that may not be looked at is not there."""
        return self.runs.is_there(str(artefact))

    @property
    def may_save(self) -> bool:
        """Whether saving is worth an attempt: not where it cannot succeed, for some minutes."""
        return not self._hopeless.includes(_SAVING)

    def save(
        self,
        client: Client,
        blocks: Sequence[str],
        tensors: Mapping[str, Any],
        options: CompressArguments,
        timeout: float | None,
        first_token: int | None = None,
    ) -> int:
        """Compresses a run of blocks into an artefact, and has their pointers lead to it.

        Args:
            client: Calls the service.
            blocks: Their hashes, as hexadecimal digits.
            tensors: What they hold.
            options: Of the call.
            timeout: Seconds; None for what the size takes.
            first_token: The position of their first token in the text, where that is known.

        Returns:
            The bytes of the artefact.

        Raises:
            KVCompressError: The call failed.
            OSError: Something cannot be written, or does not fit. Of the artefact nothing stays.
        """
        labels, metadata = self.texts(blocks, first_token)
        wanted: CompressArguments = {**options, "labels": labels}
        seconds = to_save(size_of(self.content.kinds(len(blocks))), timeout)
        with self.runs.staged() as staged:
            try:
                compress(client, tensors, staged, metadata=metadata, timeout=seconds, **wanted)
            except KVCompressError as error:
                if is_lasting(error):
                    self._hopeless.note(_SAVING)
                raise
            size = Path(staged).stat().st_size
            self.runs.add(staged, blocks)
        return size

    def add(self, artefact: memoryview, blocks: Sequence[str]) -> int:
        """Stores an artefact that was made with the `texts` of its blocks; returns its bytes.

        Raises:
            OSError: Something cannot be written, or does not fit. Of the artefact nothing stays.
        """
        with self.runs.staged() as staged:
            with Path(staged).open("xb") as file:
                file.write(artefact)
                file.flush()
                os.fsync(file.fileno())
            self.runs.add(staged, blocks)
        return artefact.nbytes

    def texts(
        self, blocks: Sequence[str], first_token: int | None
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the labels and the metadata of an artefact of a run of blocks."""
        metadata = {_BLOCKS: ",".join(blocks)}
        if first_token is not None:
            metadata["first_token"] = str(first_token)
        return self._labels(blocks), metadata

    def artefact_of(self, block: str) -> Path | None:
        """Returns the artefact that a block's pointer leads to; None when there is none."""
        artefact = self.runs.artefact_of(block)
        return None if artefact is None else Path(artefact)

    def read(self, artefact: Path) -> Found:
        """Reads an artefact, once: what is found in these bytes is what is verified.

        Raises:
            ForeignFileError: It is no file, or too large for what it has to hold.
            NotThisError: It does not say which blocks it has, or holds other tensors than those of
                so many blocks.
            OSError: It cannot be read.
        """
        most = self.content.most_blocks * _MORE_BLOCKS
        data = self.runs.read(str(artefact), most_bytes(self.content.kinds(most)))
        contents = read_contents(data)
        blocks = tuple(str(contents.metadata.get(_BLOCKS, "")).split(","))
        if blocks == ("",):
            raise NotThisError("it does not say which blocks it has")
        if len(blocks) > most:
            raise NotThisError(f"it has {len(blocks)} blocks, and may have {most}")
        contents.check(self.content.kinds(len(blocks)))
        return Found(artefact, data, blocks)

    def restore(
        self,
        exchange: Exchange,
        found: Found,
        tokens: tuple[int, int] | None,
        timeout: float | None,
    ) -> Mapping[str, Any]:
        """Returns the torch tensors of an artefact, after every check.

        Args:
            exchange: Calls the service.
            found: What has been read.
            tokens: Half-open range of tokens to restore; None for all.
            timeout: Seconds; None for what the artefact's size takes.

        Raises:
            KVCompressError: The call failed; DataLossError for what is damaged, or was made for
                other blocks, another model, type or layout.
        """
        size = size_of(self.content.kinds(len(found.blocks)))
        try:
            return exchange.restore(
                found.data,
                to_restore(size, timeout),
                tokens=tokens,
                expected_labels=self.labels_of(found),
            )
        except KVCompressError as error:
            if is_lasting(error):  # as where the server does not have its profile
                self.runs.hide(str(found.path), HOPELESS_SECONDS)
            raise

    def labels_of(self, found: Found) -> dict[str, str]:
        """Returns the labels that an artefact has to have before its tensors are used."""
        return self._labels(found.blocks)

    def discard(self, artefact: Path) -> None:
        """Removes an artefact that is of no use, so that its blocks are saved again."""
        self.runs.discard(str(artefact))

    def forget(self, blocks: Iterable[str]) -> None:
        """Removes pointers, so that their blocks are not there until they are saved again."""
        self.runs.forget(blocks)

    def _labels(self, blocks: Sequence[str]) -> dict[str, str]:
        """What is bound to an artefact."""
        return {**self._identity, _BLOCKS: digest_of(blocks)}
