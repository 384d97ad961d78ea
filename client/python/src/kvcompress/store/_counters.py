# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Counters of a store since it was opened, and its subscribers."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Reason = Literal["capacity", "expired", "damaged", "replaced", "disk full", "asked", "orphan"]
"""Why an artefact was removed."""


Failure = Literal["full", "locked", "disk full", "read-only", "other"]
"""Why an artefact was not stored."""


@dataclass(frozen=True)
class Event:
    """An artefact that was stored or removed by this process.

    Attributes:
        action: Which of the two.
        collection: Name of the folder of the collection; empty for a chunk.
        artefact: Path within the store's folder.
        blocks: The blocks of a run that are there since, or are gone.
        bytes: What it takes, in pages.
        reason: Why it was removed; empty where it was stored.
        in_vain: Whether it was evicted for the capacity before anybody had read it.
    """

    action: Literal["stored", "removed"]
    collection: str
    artefact: str
    blocks: tuple[str, ...]
    bytes: int
    reason: Reason | Literal[""] = ""
    in_vain: bool = False


@dataclass(frozen=True)
class StoreStats:
    """What a folder holds, and what one process did there.

    Attributes:
        capacity_bytes: The bound.
        bytes: What is there, of all processes, as far as is known without listing it.
        artefacts: How many.
        hits: Look-ups of this process that found something.
        misses: Look-ups that did not.
        stored: Artefacts that this process stored.
        stored_bytes: What they take.
        read: Artefacts that it read.
        evictions: Artefacts that it removed, by reason.
        evicted_bytes: What they took.
        evicted_unread: How many of them went for the capacity before anybody had read them: where
            these are most, the capacity is too small.
        failures: Artefacts that were not stored, by reason: `full` (it does not fit), `locked`
            (by another process, for too long), `disk full`, `read-only`, `other`.
    """

    capacity_bytes: int
    bytes: int
    artefacts: int
    hits: int
    misses: int
    stored: int
    stored_bytes: int
    read: int
    evictions: dict[str, int] = field(default_factory=dict)
    evicted_bytes: int = 0
    evicted_unread: int = 0
    failures: dict[str, int] = field(default_factory=dict)


class Counters:
    """Counts, and notifies subscribers. Thread safe."""

    def __init__(self) -> None:
        """Begins at nothing."""
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._evictions: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._subscribers: list[Callable[[Event], object]] = []

    def subscribe(self, subscriber: Callable[[Event], object]) -> None:
        """Calls a function with every event from now on."""
        self._subscribers.append(subscriber)

    def count(self, **more: int) -> None:
        """Adds to numbers of StoreStats."""
        with self._lock:
            self._numbers.update(more)

    def failed(self, reason: Failure) -> None:
        """Counts what did not work."""
        with self._lock:
            self._failures[reason] += 1

    def stored(self, event: Event) -> None:
        """Counts an artefact, and notifies subscribers."""
        self.count(stored=1, stored_bytes=event.bytes)
        self._tell(event)

    def removed(self, event: Event) -> None:
        """Counts an artefact that is gone, and notifies subscribers."""
        with self._lock:
            self._evictions[event.reason] += 1
            self._numbers.update(evicted_bytes=event.bytes, evicted_unread=int(event.in_vain))
        self._tell(event)

    def stats(self, capacity: int, held_bytes: int, artefacts: int) -> StoreStats:
        """Returns all counters."""
        with self._lock:
            numbers = {name: self._numbers[name] for name in _NUMBERS}
            return StoreStats(
                capacity,
                held_bytes,
                artefacts,
                evictions=dict(self._evictions),
                failures=dict(self._failures),
                **numbers,
            )

    def _tell(self, event: Event) -> None:
        """Calls all subscribers."""
        for subscriber in self._subscribers:
            subscriber(event)


_NUMBERS = (
    "hits",
    "misses",
    "stored",
    "stored_bytes",
    "read",
    "evicted_bytes",
    "evicted_unread",
)
