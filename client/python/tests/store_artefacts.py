# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Artefacts for tests of the store, which looks at their headers alone."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from kvcompress.store import ArtefactStore, RunCollection

PAGE = 4096
IDENTITY = {"model": "org/tiny", "dtype": "bfloat16"}


def hashes(*names: object) -> list[str]:
    """Hashes of blocks."""
    return [hashlib.sha256(str(name).encode()).hexdigest() for name in names]


def artefact(blocks: Sequence[str], size: int = 1000) -> bytes:
    """Bytes that begin as an artefact of these blocks does, and depend on them to the end."""
    header = json.dumps({"__metadata__": {"blocks": ",".join(blocks)}}).encode()
    beginning = len(header).to_bytes(8, "little") + header
    key = hashlib.sha256(beginning).digest()
    rest = max(0, size - len(beginning))
    return beginning + (key * (rest // len(key) + 1))[:rest]


def is_whole(data: bytes) -> bool:
    """Returns whether bytes are what `artefact` returned."""
    length = int.from_bytes(data[:8], "little")
    blocks = json.loads(data[8 : 8 + length])["__metadata__"]["blocks"].split(",")
    return data == artefact(blocks, len(data))


def save(runs: RunCollection, blocks: Sequence[str], size: int = 1000) -> int:
    """Stores an artefact, as an engine does."""
    with runs.staged() as path:
        Path(path).write_bytes(artefact(blocks, size))
        return runs.add(path, blocks)


def load(runs: RunCollection, block: str) -> bytes | None:
    """Loads the artefact with a block, as an engine does."""
    path = runs.artefact_of(block)
    if path is None:
        return None
    try:
        return runs.read(path, 1 << 30)
    except FileNotFoundError:
        return None


def runs_of(store: ArtefactStore, **identity: str) -> RunCollection:
    """A collection."""
    return store.runs("tiny", {**IDENTITY, **identity})


def held(folder: Path) -> int:
    """What the artefacts and pointers of a folder take, listed without the store, in pages."""
    total = 0
    for place, _, names in os.walk(folder):
        if ".store" in Path(place).parts:
            continue
        for name in names:
            if name != "identity.json":
                try:
                    size = (Path(place) / name).lstat().st_size
                except FileNotFoundError:  # evicted
                    continue
                total += -(-size // PAGE) * PAGE
    return total


def unfinished(folder: Path) -> list[Path]:
    """What writers have not finished."""
    writers = folder / ".store" / "writers"
    return [path for path in writers.glob("*/*") if not path.name.startswith("lock")]
