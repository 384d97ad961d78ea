# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Loads and saves of vLLM's chunks: what fails is logged and counted, and the engine computes."""

import logging
from collections.abc import Callable
from pathlib import Path

from kvcompress.errors import (
    CallCancelledError,
    DataLossError,
    KVCompressError,
    UnavailableError,
)
from kvcompress.integrations._artefact_folder import ArtefactFolder, Found
from kvcompress.integrations._service import Service
from kvcompress.integrations._vllm_metrics import Metrics

_LOG = logging.getLogger(__name__)


class Attempts:
    """Loads and saves artefacts, and raises nothing that is not an error of this package."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        """Takes what counts how calls ended."""
        self._service, self._metrics = service, metrics

    def save(self, chunks: int, raw: int, save: Callable[[], int | None]) -> bool:
        """Saves chunks of so many bytes; returns whether they are there.

        Args:
            chunks: How many.
            raw: Their bytes.
            save: Does it; returns the bytes of the artefact, or None where it was given up.
        """
        try:
            size = save()
        except (KVCompressError, OSError, ValueError) as error:
            self._note_failure("save", f"{chunks} chunks are not saved", error)
            return False
        if size is None:
            return False
        self._service.succeeded()
        self._metrics.moved("save", raw, size)
        return True

    def load(
        self, folder: ArtefactFolder, artefact: Path, raw: int, restore: Callable[[Found], None]
    ) -> bool:
        """Restores chunks of so many bytes from one artefact; returns whether they are there.

        An artefact that is damaged, or of something else, is removed.

        Args:
            folder: Has the artefact.
            artefact: Where.
            raw: The bytes of the chunks.
            restore: Restores and writes them, after every check.
        """
        try:
            found = folder.read(artefact)
            restore(found)
        except FileNotFoundError:
            return False  # it was evicted after it was looked up
        except (KVCompressError, OSError, ValueError) as error:
            if isinstance(error, DataLossError | ValueError):
                folder.discard(artefact)
            self._note_failure("load", f"{artefact} is not restored, but computed", error)
            return False
        self._service.succeeded()
        self._metrics.moved("load", raw, len(found.data))
        return True

    def _note_failure(self, operation: str, what: str, error: Exception) -> None:
        """Logs and counts what did not work."""
        reason = _reason_of(error)
        if reason == "unavailable":
            self._service.failed()
        _LOG.warning("%s: %s", what, error)
        self._metrics.failed(operation, reason)


def _reason_of(error: Exception) -> str:
    """Returns the label of a counter."""
    if isinstance(error, UnavailableError | CallCancelledError | ConnectionError | TimeoutError):
        return "unavailable"
    if isinstance(error, DataLossError | ValueError):
        return "damaged"
    return "disk" if isinstance(error, OSError) else "other"
