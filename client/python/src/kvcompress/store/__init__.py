# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A folder of artefacts with a bound: what inference engines keep, evict and find again.

    store = ArtefactStore("/cache", StoreOptions(capacity_bytes=200 * 10**9))
    runs = store.runs("llama", {"model": "org/llama", "dtype": "bfloat16"})
    with runs.staged() as path:
        client.compress(tensors, path, metadata={"blocks": ",".join(hashes)})
        runs.add(path, hashes)
    artefact = runs.artefact_of(hashes[0])

The integrations of vLLM, SGLang and LMCache use it. `python -m kvcompress store` shows a folder and
cleans it up. docs/guides/store.md has the guide, and docs/decisions/artefact-store.md the design.
"""

from kvcompress.store._collections import ChunkCollection, ChunkEntry, RunCollection, digest_of
from kvcompress.store._counters import Event, StoreStats
from kvcompress.store._demotion import Demoted, Demoter, Demotion
from kvcompress.store._errors import (
    ReadOnlyStoreError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from kvcompress.store._layout import Entry
from kvcompress.store._options import OPTION_NAMES, StoreOptions
from kvcompress.store._removal import Removed
from kvcompress.store._store import ArtefactStore
from kvcompress.store._sweep import Swept

__all__ = [
    "OPTION_NAMES",
    "ArtefactStore",
    "ChunkCollection",
    "ChunkEntry",
    "Demoted",
    "Demoter",
    "Demotion",
    "Entry",
    "Event",
    "ReadOnlyStoreError",
    "Removed",
    "RunCollection",
    "StoreBusyError",
    "StoreError",
    "StoreFullError",
    "StoreOptions",
    "StoreStats",
    "Swept",
    "digest_of",
]
