# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where the LMCache adapter keeps artefacts: a folder, or any file system of fsspec."""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol


class Store(Protocol):
    """Bytes by name. Thread safe; all methods raise OSError."""

    def exists(self, name: str) -> bool:
        """Tells whether there is something of this name."""

    def read(self, name: str) -> bytes:
        """Gives what is there; FileNotFoundError for nothing."""

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it, or leaves what was there."""

    def remove(self, name: str) -> None:
        """Removes it; FileNotFoundError for nothing."""


class Folder:
    """A folder, which several servers may share."""

    def __init__(self, path: str) -> None:
        """Makes the folder if there is none."""
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def exists(self, name: str) -> bool:
        """Tells whether there is something of this name."""
        return (self._path / name).exists()

    def read(self, name: str) -> bytes:
        """Gives what is there."""
        return (self._path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it under another name, and renames it."""
        target = self._path / name
        target.parent.mkdir(exist_ok=True)
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            unfinished.write_bytes(data)
            unfinished.replace(target)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            raise

    def remove(self, name: str) -> None:
        """Removes it."""
        (self._path / name).unlink()


class Remote:
    """A file system of fsspec. What a broken writing leaves there fails the checks of loading."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Takes what fsspec takes, such as `s3://bucket/folder`.

        Raises:
            ImportError: fsspec, or what it needs for this kind of URL, is not installed.
            ValueError: fsspec does not know this kind of URL.
        """
        from fsspec.core import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            url_to_fs,
        )

        self._system, self._path = url_to_fs(url, **options)

    def exists(self, name: str) -> bool:
        """Tells whether there is something of this name."""
        return bool(self._system.exists(f"{self._path}/{name}"))

    def read(self, name: str) -> bytes:
        """Gives what is there."""
        return bytes(self._system.cat_file(f"{self._path}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it at once, which object stores do as a whole."""
        path = f"{self._path}/{name}"
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._system.pipe_file(path, data)

    def remove(self, name: str) -> None:
        """Removes it."""
        self._system.rm_file(f"{self._path}/{name}")


def open_store(location: str, options: Mapping[str, Any]) -> Store:
    """Opens a path or a URL, with the options of its kind of file system.

    Raises:
        ImportError: A package is missing that the URL needs.
        OSError: The folder cannot be made.
        ValueError: There is no such kind of URL, or a path has options.
    """
    if "://" in location:
        return Remote(location, options)
    if options:
        raise ValueError(f"storage_options are for URLs, and {location!r} is a path")
    return Folder(location)


def name_of(labels: Mapping[str, str]) -> str:
    """Gives the name of an artefact: a digest of its labels, in one of 256 folders."""
    text = json.dumps(dict(labels), sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    return f"{digest[:2]}/{digest[2:42]}.safetensors"
