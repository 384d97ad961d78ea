# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where the LMCache adapter keeps artefacts: a folder, a file system of fsspec, or Redis."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

_REDIS = ("redis", "rediss")
_REDIS_OPTIONS = {"socket_timeout": 0.75, "socket_connect_timeout": 0.75}
_REDIS_PAUSE = 5.0  # seconds without a call after one without an answer


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


class Redis:
    """A server that speaks Redis's protocol, such as Redis or Valkey.

    What it has evicted or let expire is not there. While it does not answer, nobody waits for it:
    for some seconds, all methods raise at once.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Connects with the first call.

        Args:
            url: As `redis.Redis.from_url` takes it.
            options: As there, and `prefix` of all keys (`kvcompress:`) and `ttl`, the seconds
                after which a key expires that is not written again.

        Raises:
            ImportError: The package redis is not installed.
            ValueError: The URL is none.
        """
        import redis  # type: ignore[import-not-found,unused-ignore]
        from redis.backoff import (  # type: ignore[import-not-found,unused-ignore]
            NoBackoff,
        )
        from redis.retry import (  # type: ignore[import-not-found,unused-ignore]
            Retry,
        )

        given = {**_REDIS_OPTIONS, **options}
        self._prefix, self._ttl = str(given.pop("prefix", "kvcompress:")), given.pop("ttl", None)
        self._errors = redis.RedisError
        self._no_answer = (redis.ConnectionError, redis.TimeoutError)
        # Once, for a connection of the pool that the server has closed.
        given.setdefault("retry", Retry(NoBackoff(), 1, (redis.ConnectionError,)))
        self._redis = redis.Redis.from_url(url, **given)
        self._silent_until = 0.0

    def exists(self, name: str) -> bool:
        """Tells whether there is something of this name."""
        with self._call():
            return bool(self._redis.exists(self._prefix + name))

    def read(self, name: str) -> bytes:
        """Gives what is there."""
        with self._call():
            data = self._redis.get(self._prefix + name)
        if data is None:
            raise FileNotFoundError(name)
        return bytes(data)

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it at once."""
        with self._call():
            self._redis.set(self._prefix + name, data, ex=self._ttl)

    def remove(self, name: str) -> None:
        """Removes it."""
        with self._call():
            removed = self._redis.delete(self._prefix + name)
        if not removed:
            raise FileNotFoundError(name)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Has errors of Redis be those of files."""
        if time.monotonic() < self._silent_until:
            raise ConnectionError("Redis did not answer a moment ago")
        try:
            yield
        except self._errors as error:
            if isinstance(error, self._no_answer):
                self._silent_until = time.monotonic() + _REDIS_PAUSE
            raise OSError(f"Redis: {error}") from error


def open_store(location: str, options: Mapping[str, Any]) -> Store:
    """Opens a path or a URL, with the options of its kind of file system.

    Raises:
        ImportError: A package is missing that the URL needs.
        OSError: The folder cannot be made.
        ValueError: There is no such kind of URL, or a path has options.
    """
    if location.partition("://")[0] in _REDIS and "://" in location:
        return Redis(location, options)
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
