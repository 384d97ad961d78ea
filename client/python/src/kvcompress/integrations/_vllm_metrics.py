# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What vLLM's tier counts, by the names of vLLM's page of metrics."""

import threading
import time

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (  # type: ignore[import-not-found,unused-ignore]
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    OffloadingMetricMetadata,
)

from kvcompress.store import ArtefactStore, Event

_PREFIX = "vllm:kv_offload_kvcompress_"
_FAILURES = f"{_PREFIX}failures"
_RAW_BYTES = f"{_PREFIX}raw_bytes"
_ARTEFACT_BYTES = f"{_PREFIX}artefact_bytes"
_EVICTIONS = f"{_PREFIX}evictions"
_EVICTED_BYTES = f"{_PREFIX}evicted_bytes"
_EVICTED_UNREAD = f"{_PREFIX}evicted_unread"
_STORE_BYTES = f"{_PREFIX}store_bytes"
_STORE_ARTEFACTS = f"{_PREFIX}store_artefacts"
_CAPACITY = f"{_PREFIX}store_capacity_bytes"
_SECONDS = 5.0  # between looks at the ledger of the folder

DEFINITIONS: dict[str, OffloadingMetricMetadata] = {
    _FAILURES: OffloadingCounterMetadata(
        "Artefacts that were not saved or not restored, by operation (save, load) and "
        "reason: damaged (or another than expected), unavailable (the service), disk, "
        "other.",
        ("operation", "reason"),
    ),
    _RAW_BYTES: OffloadingCounterMetadata(
        "Bytes of chunks that were saved or restored, by operation.", ("operation",)
    ),
    _ARTEFACT_BYTES: OffloadingCounterMetadata(
        "Bytes of the artefacts that were written or read, by operation.", ("operation",)
    ),
    _EVICTIONS: OffloadingCounterMetadata(
        "Artefacts that this engine removed, by reason: capacity, expired, damaged, replaced, "
        "disk full, orphan, asked.",
        ("reason",),
    ),
    _EVICTED_BYTES: OffloadingCounterMetadata("Bytes of these artefacts, by reason.", ("reason",)),
    _EVICTED_UNREAD: OffloadingCounterMetadata(
        "Artefacts that were evicted for the capacity before anybody had read them: where these "
        "are most of the evictions, the capacity is too small.",
        (),
    ),
    _STORE_BYTES: OffloadingGaugeMetadata("Bytes in the folder, of all engines.", ()),
    _STORE_ARTEFACTS: OffloadingGaugeMetadata("Artefacts in the folder, of all engines.", ()),
    _CAPACITY: OffloadingGaugeMetadata("The most bytes that the folder may hold.", ()),
}


class Metrics:
    """Counts until vLLM takes the increase. Thread safe."""

    def __init__(self, store: ArtefactStore) -> None:
        """Listens to a store."""
        self._store = store
        self._stats, self._lock = OffloadingConnectorStats(), threading.Lock()
        self._next = 0.0
        store.subscribe(self._removed)

    def failed(self, operation: str, reason: str) -> None:
        """Counts what did not work."""
        with self._lock:
            self._stats.increase_counter(_FAILURES, 1, (operation, reason))

    def moved(self, operation: str, raw: int, size: int) -> None:
        """Counts bytes."""
        with self._lock:
            self._stats.increase_counter(_RAW_BYTES, raw, (operation,))
            self._stats.increase_counter(_ARTEFACT_BYTES, size, (operation,))

    def take(self) -> OffloadingConnectorStats | None:
        """Returns the increase since the last call; None where there is none."""
        now = time.monotonic()
        with self._lock:
            stats, self._stats = self._stats, OffloadingConnectorStats()
        if now >= self._next:
            self._next = now + _SECONDS
            held = self._store.stats()
            stats.set_gauge(_STORE_BYTES, held.bytes)
            stats.set_gauge(_STORE_ARTEFACTS, held.artefacts)
            stats.set_gauge(_CAPACITY, held.capacity_bytes)
        return None if stats.is_empty() else stats

    def _removed(self, event: Event) -> None:
        """Counts an artefact that is gone."""
        if event.action != "removed":
            return
        with self._lock:
            self._stats.increase_counter(_EVICTIONS, 1, (event.reason,))
            self._stats.increase_counter(_EVICTED_BYTES, event.bytes, (event.reason,))
            if event.in_vain:
                self._stats.increase_counter(_EVICTED_UNREAD, 1)
