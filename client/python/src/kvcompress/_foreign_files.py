# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reads files in folders that others can write: nothing there waits, or takes memory without end.

Somebody may have put a FIFO, a device, a link, a sparse file of any size or JSON of any depth in
the place of what is expected.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder"}
_NO_FILES = {errno.ELOOP: "a symbolic link", errno.ENXIO: "a socket or a device"}


class ForeignFileError(ValueError):
    """A file that is refused before it is read, for what it is."""


def open_foreign(
    path: str | os.PathLike[str], most_bytes: int, *, unnoticed: bool = False
) -> BinaryIO:
    """Opens a regular file; never waits, and follows no link in the last part of the path.

    Args:
        path: The file.
        most_bytes: The largest size that the caller can use.
        unnoticed: Whether its access time stays as it is, where the system allows that.

    Raises:
        ForeignFileError: It is no regular file, is larger, or belongs to another user in a folder
            that everybody can write.
        OSError: It cannot be opened; FileNotFoundError where there is none.
    """
    name = os.fspath(path)
    descriptor = _open(name, most_bytes, unnoticed)
    try:
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_foreign(
    path: str | os.PathLike[str], most_bytes: int, *, unnoticed: bool = False
) -> bytes:
    """Reads a file that `open_foreign` opens.

    Raises:
        ForeignFileError: As there.
        OSError: It cannot be read.
    """
    descriptor = _open(os.fspath(path), most_bytes, unnoticed)
    try:
        # It may grow from here on.
        left, parts = os.fstat(descriptor).st_size, []
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """Parses JSON of others.

    Raises:
        ValueError: It is none, or lists and objects in it are nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def is_own(found: os.stat_result) -> bool:
    """Returns whether what was found belongs to the user of this process."""
    return found.st_uid == os.geteuid()


def _open(name: str, most_bytes: int, unnoticed: bool) -> int:
    """Opens a file that may be read and returns its descriptor."""
    try:
        descriptor = _open_unnoticed(name) if unnoticed else os.open(name, _FLAGS)
    except OSError as error:
        if error.errno in _NO_FILES:
            raise ForeignFileError(f"{name!r} is {_NO_FILES[error.errno]}, not a file") from error
        raise
    try:
        _check(name, os.fstat(descriptor), most_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_unnoticed(name: str) -> int:
    """Opens a file so that its access time stays, which the system grants to its owner alone."""
    try:
        return os.open(name, _FLAGS | getattr(os, "O_NOATIME", 0))
    except PermissionError:
        return os.open(name, _FLAGS)


def _check(name: str, found: os.stat_result, most_bytes: int) -> None:
    """Refuses what cannot be the file."""
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise ForeignFileError(f"{name!r} is {kind}, not a file")
    if found.st_size > most_bytes:
        raise ForeignFileError(f"{name!r} has {found.st_size} bytes, and may have {most_bytes}")
    if not is_own(found) and Path(name).parent.stat().st_mode & stat.S_IWOTH:
        raise ForeignFileError(
            f"{name!r} belongs to user {found.st_uid}, in a folder that everybody can write: use "
            "one that only this user can write"
        )
