# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The keys of chunks: those in a folder, and those that this process has stored."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lmcache.v1.distributed.api import (  # type: ignore[import-not-found,unused-ignore]
    KeyEntry,
    KeyListPage,
    ObjectKey,
)

from kvcompress.integrations._lmcache_chunks import key_of, labels_of
from kvcompress.integrations._lmcache_store import name_of
from kvcompress.store import ArtefactStore, ChunkCollection


class Keys:
    """Names chunks, and knows what this process has stored, as LMCache adds it up. Thread safe."""

    def __init__(self, identity: Mapping[str, str]) -> None:
        """Begins with none stored.

        Args:
            identity: What chunks depend on in addition to their keys.
        """
        self._identity = dict(identity)
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[Any, int]] = {}  # with bytes, by the name of the chunk

    def labels(self, key: Any) -> dict[str, str]:  # noqa: ANN401
        """Returns the labels that an artefact has to have."""
        return labels_of(key, self._identity)

    def name(self, key: Any) -> str:  # noqa: ANN401
        """Returns the name of a chunk: a digest of its labels."""
        return name_of(self.labels(key))

    def add(self, stored: Mapping[Any, int]) -> dict[Any, int]:
        """Takes keys and bytes; returns those that were there, which somebody else has removed."""
        named = {self.name(key): (key, size) for key, size in stored.items()}
        with self._lock:
            before = dict(self._keys[name] for name in named if name in self._keys)
            self._keys.update(named)
        return before

    def key(self, name: str) -> Any:  # noqa: ANN401
        """Returns the key of a chunk; None where this process has not stored it."""
        with self._lock:
            return self._keys.get(name, (None, 0))[0]

    def pop(self, names: Iterable[str]) -> list[int]:
        """Drops chunks; returns their bytes, 0 where this process has not stored one."""
        with self._lock:
            return [self._keys.pop(name, (None, 0))[1] for name in names]


def held(store: ArtefactStore) -> dict[str, Any]:
    """Returns what the store of a folder holds and has evicted, for LMCache's page of status."""
    stats = store.stats()
    return {
        "max_capacity_bytes": stats.capacity_bytes,
        "held_bytes": stats.bytes,
        "held_chunks": stats.artefacts,
        "evictions": stats.evictions,
        "evicted_bytes": stats.evicted_bytes,
        "evicted_unread": stats.evicted_unread,
    }


def list_keys(
    chunks: ChunkCollection,
    keys: Keys,
    model_name: str | None,
    page_size: int,
    cursor: str | None,
) -> KeyListPage:
    """Lists keys behind a place, at most so many.

    Args:
        chunks: Of the folder.
        keys: Names chunks: those of other weights, or another identity, are not listed.
        model_name: None for all models.
        page_size: The most entries.
        cursor: The name of the last chunk of the page before; None to begin.

    Raises:
        ValueError: The size is not positive.
    """
    if page_size <= 0:
        raise ValueError(f"page_size is {page_size}, and has to be positive")
    entries: list[KeyEntry] = []
    last = None
    for name, key, size in _keys(chunks, cursor or ""):
        if model_name is not None and key.model_name != model_name:
            continue
        if keys.name(key) != name:
            continue
        if len(entries) == page_size:
            return KeyListPage(tuple(entries), last)
        entries.append(KeyEntry(key.to_encoded_object_key(), size))
        last = name
    return KeyListPage(tuple(entries), None)


def _keys(chunks: ChunkCollection, after: str) -> Iterator[tuple[str, ObjectKey, int]]:
    """Yields name, key and size of each chunk; what is bound to no key is passed over."""
    for entry in chunks.list(after):
        try:
            key = ObjectKey(**key_of(entry.metadata))
        except (KeyError, ValueError):
            continue
        yield entry.name, key, entry.bytes
