# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Errors of the store. All are OSErrors, which every user of a folder handles."""


class StoreError(OSError):
    """The folder cannot be used in this way. The message names it, the limit and the remedy."""


class StoreFullError(StoreError):
    """An artefact does not fit: it is larger than the capacity, or all others are being read."""


class StoreBusyError(StoreError, TimeoutError):
    """Another process has held the folder's lock for too long."""


class ReadOnlyStoreError(StoreError, PermissionError):
    """The folder is read, and cannot be written."""
