# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a folder holds, in Prometheus's text format, for the textfile collector of node_exporter."""

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

from kvcompress.store._counters import Reason
from kvcompress.store._ledger import Account

_PREFIX = "kvcompress_store"


def exposition(folder: str, account: Account) -> str:
    """Returns the metrics of a folder; a counter that has not counted yet is 0."""
    label = folder.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return "".join(f"{line}\n" for line in _lines(f'folder="{label}"', account))


def write_whole(path: str, text: str) -> None:
    """Writes a file that everybody may read, in the place of one that is there, whole.

    Raises:
        OSError: It cannot be written; what was there stays.
    """
    # The collector reads names that end with .prom.
    unfinished = f"{path}.{secrets.token_hex(4)}.new"
    try:
        with open(unfinished, "x", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _lines(folder: str, account: Account) -> Iterator[str]:
    """Yields lines."""
    for name, kind, text, value in (
        ("bytes", "gauge", "Bytes of the artefacts in the folder, in pages.", account.bytes),
        ("artefacts", "gauge", "Artefacts in the folder.", account.artefacts),
        ("capacity_bytes", "gauge", "The most bytes that the folder may hold.", account.capacity),
        ("evicted_bytes_total", "counter", "Bytes of artefacts removed.", account.evicted_bytes),
        (
            "evicted_unread_total",
            "counter",
            "Artefacts evicted for the capacity before anybody had read them.",
            account.evicted_unread,
        ),
    ):
        yield from _head(name, kind, text)
        yield f"{_PREFIX}_{name}{{{folder}}} {value}"
    yield from _head("evictions_total", "counter", "Artefacts removed, by reason.")
    for reason in get_args(Reason):
        yield (
            f'{_PREFIX}_evictions_total{{{folder},reason="{reason}"}} '
            f"{account.evictions.get(reason, 0)}"
        )


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    """Yields the lines that describe a metric."""
    yield f"# HELP {_PREFIX}_{name} {text}"
    yield f"# TYPE {_PREFIX}_{name} {kind}"
