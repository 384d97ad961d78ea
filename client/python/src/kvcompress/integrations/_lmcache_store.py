# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where the LMCache adapter keeps artefacts: a folder, a file system of fsspec, or Redis."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from kvcompress._foreign_files import ForeignFileError
from kvcompress.store import ArtefactStore, StoreOptions

_REDIS = ("redis", "rediss")
_LOCAL = ("file", "local")  # fsspec would wait for a FIFO, and write through links
_REDIS_OPTIONS = {"socket_timeout": 0.75, "socket_connect_timeout": 0.75}
_REDIS_PAUSE = 5.0  # seconds without a call after one without an answer


class Store(Protocol):
    """Bytes by name. Thread safe; all methods raise OSError."""

    def exists(self, name: str) -> bool:
        """Returns whether there is something of this name."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """Returns what is there; FileNotFoundError for nothing, ForeignFileError for more bytes."""

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it, or leaves what was there."""

    def remove(self, names: Iterable[str]) -> list[str]:
        """Removes what has these names; returns those that were there."""

    def discard(self, name: str) -> None:
        """Removes what is of no use."""


class Folder:
    """A folder with a bound, which several servers may share.

    Attributes:
        store: The bound, and what the folder holds.
        chunks: What is in it.
    """

    def __init__(self, path: str, options: StoreOptions) -> None:
        """Opens the store of the folder.

        Raises:
            OSError: The folder cannot be used.
        """
        self.store = ArtefactStore(path, options)
        self.chunks = self.store.chunks()

    def exists(self, name: str) -> bool:
        """Returns whether there is something of this name."""
        return self.chunks.exists(name)

    def read(self, name: str, most_bytes: int) -> bytes:
        """Returns what is there."""
        return self.chunks.read(name, most_bytes)

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it, in the place of whatever has the name, links included."""
        self.chunks.write(name, data)

    def remove(self, names: Iterable[str]) -> list[str]:
        """Removes chunks, but for those that are being read."""
        return self.chunks.remove(names)

    def discard(self, name: str) -> None:
        """Removes what is of no use."""
        self.chunks.discard(name)


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
        """Returns whether there is something of this name."""
        return bool(self._system.exists(f"{self._path}/{name}"))

    def read(self, name: str, most_bytes: int) -> bytes:
        """Returns what is there."""
        data = self._system.cat_file(f"{self._path}/{name}", end=most_bytes + 1)
        return _bounded(bytes(data), name, most_bytes)

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it at once, which object stores do as a whole."""
        path = f"{self._path}/{name}"
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._system.pipe_file(path, data)

    def remove(self, names: Iterable[str]) -> list[str]:
        """Removes what has these names."""
        removed = []
        for name in names:
            with suppress(FileNotFoundError):
                self._system.rm_file(f"{self._path}/{name}")
                removed.append(name)
        return removed

    def discard(self, name: str) -> None:
        """Removes it."""
        self.remove([name])


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
        """Returns whether there is something of this name."""
        with self._call():
            return bool(self._redis.exists(self._prefix + name))

    def read(self, name: str, most_bytes: int) -> bytes:
        """Returns what is there; an artefact is never empty."""
        with self._call():
            data = self._redis.getrange(self._prefix + name, 0, most_bytes)
        if not data:
            raise FileNotFoundError(name)
        return _bounded(bytes(data), name, most_bytes)

    def write(self, name: str, data: bytes) -> None:
        """Writes all of it at once."""
        with self._call():
            self._redis.set(self._prefix + name, data, ex=self._ttl)

    def remove(self, names: Iterable[str]) -> list[str]:
        """Removes what has these names."""
        with self._call():
            return [name for name in names if self._redis.delete(self._prefix + name)]

    def discard(self, name: str) -> None:
        """Removes it."""
        self.remove([name])

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Converts errors of Redis to OSError."""
        if time.monotonic() < self._silent_until:
            raise ConnectionError("Redis did not answer a moment ago")
        try:
            yield
        except self._errors as error:
            if isinstance(error, self._no_answer):
                self._silent_until = time.monotonic() + _REDIS_PAUSE
            raise OSError(f"Redis: {error}") from error


def _bounded(data: bytes, name: str, most_bytes: int) -> bytes:
    """Returns data that was asked for with one byte more than the limit.

    Raises:
        ForeignFileError: It was there.
    """
    if len(data) > most_bytes:
        raise ForeignFileError(f"{name!r} has more than {most_bytes} bytes")
    return data


def open_store(
    location: str, options: Mapping[str, Any], bound: Mapping[str, Any] | None = None
) -> Store:
    """Opens a path or a URL, with the options of its kind of file system.

    Args:
        location: A path or a URL.
        options: Of fsspec or of Redis.
        bound: Of a folder, by the names of `kvcompress.store.StoreOptions`.

    Raises:
        ImportError: A package is missing that the URL needs.
        OSError: The folder cannot be used.
        TypeError: An option of the bound has another name or type.
        ValueError: There is no such kind of URL, or a path has options, or a URL a bound.
    """
    kind, separator, path = location.rpartition("://")
    if not separator or kind in _LOCAL:
        if options:
            raise ValueError(f"storage_options are for URLs, and {location!r} is a path")
        return Folder(path, StoreOptions.parse(bound or {}))
    if bound:
        raise ValueError(
            f"{', '.join(bound)} are for a path; what {location!r} may hold is for its server to "
            "say, such as Redis with maxmemory and an eviction policy"
        )
    return Redis(location, options) if kind in _REDIS else Remote(location, options)


def name_of(labels: Mapping[str, str]) -> str:
    """Returns the name of an artefact: a digest of its labels, in one of 256 folders."""
    text = json.dumps(dict(labels), sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    return f"{digest[:2]}/{digest[2:42]}.safetensors"
