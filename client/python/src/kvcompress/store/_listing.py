# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What is in a folder, for people and programs: totals, artefacts, and what is wrong with them."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kvcompress._foreign_files import ForeignFileError, parse_json, read_foreign
from kvcompress.payload import PayloadError, read_header, verify_digest
from kvcompress.store._headers import NoArtefactError, blocks_of
from kvcompress.store._layout import CONTROL, IDENTITY, Entry, collection_of, collections
from kvcompress.store._pointers import pointer_of, target_of
from kvcompress.store._store import ArtefactStore

_CHUNKS = "chunks"  # in place of a collection
_MOST_BYTES = 1 << 62
_MOST_IDENTITY_BYTES = 1 << 20


def totals(store: ArtefactStore, now: float) -> dict[str, Any]:
    """Returns what a folder holds, in all and by collection."""
    account = store.account()
    groups: dict[str, dict[str, Any]] = {
        os.path.basename(path): _group(path) for path in collections(store.path)
    }
    held = artefacts = 0
    for entry in store.entries():
        group = groups.setdefault(name_of(entry), _group(""))
        group["artefacts"] += 1
        group["bytes"] += entry.bytes
        group["last_used"] = max(group["last_used"] or 0.0, entry.used)
        group["first_used"] = min(group["first_used"] or now, entry.used)
        group["never_read"] += entry.never_read
        held, artefacts = held + entry.bytes, artefacts + 1
    known = asdict(account)
    return {
        "folder": store.path,
        "bytes": held,
        "capacity_bytes": known["capacity"] or None,
        "artefacts": artefacts,
        "counted_bytes": known["bytes"],
        "evictions": known["evictions"],
        "evicted_bytes": known["evicted_bytes"],
        "evicted_unread": known["evicted_unread"],
        "swept": known["swept"] or None,
        "unfinished": _unfinished(store.path),
        "collections": [{"name": name, **group} for name, group in sorted(groups.items())],
    }


def name_of(entry: Entry) -> str:
    """Returns the name of the collection that an artefact is in."""
    return os.path.basename(collection_of(entry.path)) if entry.is_run else _CHUNKS


def rows(store: ArtefactStore) -> Iterator[dict[str, Any]]:
    """Yields all artefacts, those first that will be evicted first."""
    for entry in sorted(store.entries(), key=lambda each: each.used):
        yield {
            "path": os.path.relpath(entry.path, store.path),
            "bytes": entry.bytes,
            "written": entry.written,
            "used": entry.used,
            "never_read": entry.never_read,
        }


def faults(entry: Entry) -> list[str]:
    """Verifies an artefact as a decoder does before it decodes; returns what is wrong."""
    try:
        data = read_foreign(entry.path, _MOST_BYTES, unnoticed=True)
        for tensor in read_header(data).tensors:
            verify_digest(data[tensor.begin : tensor.end], tensor)
        if not entry.is_run:
            return []
        return _pointer_faults(entry)
    except FileNotFoundError:
        return []  # it was evicted meanwhile
    except (ForeignFileError, PayloadError, NoArtefactError, OSError) as error:
        return [str(error)]


def _pointer_faults(entry: Entry) -> list[str]:
    """Reports blocks of an artefact that are not found, in it or elsewhere."""
    collection = collection_of(entry.path)
    targets = [
        target_of(collection, pointer_of(collection, each)) for each in blocks_of(entry.path)
    ]
    missing = sum(each is None or not os.path.exists(each) for each in targets)
    if missing:
        return [f"{missing} of {len(targets)} blocks have no pointer: sweep makes them"]
    return []


def _group(path: str) -> dict[str, Any]:
    """Begins the numbers of a collection."""
    return {
        "identity": _identity(path),
        "artefacts": 0,
        "bytes": 0,
        "first_used": None,
        "last_used": None,
        "never_read": 0,
    }


def _identity(path: str) -> dict[str, str]:
    """Returns what the artefacts of a collection depend on, as far as the folder says so."""
    try:
        found = parse_json(read_foreign(os.path.join(path, IDENTITY), _MOST_IDENTITY_BYTES))
    except (OSError, ForeignFileError, ValueError):
        return {}
    return (
        {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
    )


def _unfinished(root: str) -> int:
    """Counts the files that writers have not finished."""
    writers = os.path.join(root, CONTROL, "writers")
    count = 0
    for _, _, names in os.walk(writers):
        count += sum(not name.startswith("lock") for name in names)
    return count


def as_json(value: object) -> str:
    """Writes a value on one line."""
    return json.dumps(value, separators=(",", ":"))
