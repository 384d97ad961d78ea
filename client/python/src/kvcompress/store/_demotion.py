# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Encodes again, smaller, what was not used for long: from `lossless` to `ecsq` to `klt`.

An artefact is restored into a file of the store's own, compressed with another codec, and replaced
where that is smaller. It keeps its blocks, its labels, and the times at which it was written and
last used, so that the order in which artefacts are evicted stays.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kvcompress._arrays import ITEM_SIZES
from kvcompress._client import Client
from kvcompress._foreign_files import ForeignFileError
from kvcompress.errors import KVCompressError, UnavailableError
from kvcompress.options import CompressArguments
from kvcompress.store._folder import StoreFolder
from kvcompress.store._headers import NoArtefactError, blocks_of, metadata_of
from kvcompress.store._layout import Entry, collection_of
from kvcompress.store._pointers import pointer_of, target_of

# From the largest artefacts to the smallest. What is not listed is not touched, nor a target.
_LADDER: Mapping[str, int] = {
    "lossless": 0,
    "lossless-profile": 0,
    "int8": 1,
    "ecsq": 2,
    "int4": 2,
    "int4-hadamard": 2,
    "int4-kivi": 2,
    "klt": 3,
    "klt-profile": 4,
}
_LABEL, _MANIFEST = "kvcompress.label.", "kvcompress.tensors"
_MOST_BYTES = 1 << 33  # of what is restored at a time
_SAME = "="  # of a view: the codec of the one before
_VIEW_FIELDS = 4
Outcome = Literal["demoted", "kept", "failed"]


@dataclass(frozen=True)
class Demotion:
    """What to make of artefacts.

    Attributes:
        codec: A codec of the ladder: `ecsq`, `klt`, or a preset of `klt`, such as `klt:max`.
        older_than: Seconds for which an artefact was not used.
        profile: As `CompressArguments` has it, for presets of `klt`; every engine of the folder
            needs it to restore what is made with it.
        effort: As there.
    """

    codec: str
    older_than: float
    profile: str | None = None
    effort: Literal["fast", "balanced", "best"] = "balanced"

    def __post_init__(self) -> None:
        """Checks the codec and the time.

        Raises:
            ValueError: The codec is not on the ladder, or its first step; or the time is negative.
        """
        if not self.rung:
            below = ", ".join(name for name, rung in _LADDER.items() if 0 < rung <= _LADDER["klt"])
            raise ValueError(f"artefacts cannot be demoted to {self.codec!r}, but to {below}")
        if not self.older_than >= 0:
            raise ValueError(f"older_than is {self.older_than}, and has to be 0 or more")

    @property
    def rung(self) -> int:
        """How far down the ladder the codec is."""
        name, _, preset = self.codec.partition("+")[0].partition(":")
        return _LADDER["klt-profile" if preset and self.profile else name] if name in _LADDER else 0


@dataclass
class Demoted:
    """What was done.

    Attributes:
        artefacts: How many are smaller now.
        before_bytes: What they took.
        bytes: What they take, in pages as well.
        kept: Artefacts that would not be smaller, and stay as they are.
        failed: Artefacts that could not be encoded again, and stay as they are.
        errors: Why, the first few.
    """

    artefacts: int = 0
    before_bytes: int = 0
    bytes: int = 0
    kept: int = 0
    failed: int = 0
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Made:
    """How an artefact was made.

    Attributes:
        rung: Of the smallest of its codecs.
        layout: Of all of its tensors.
        bytes: What it restores to.
        labels: Bound to it.
    """

    rung: int
    layout: str
    bytes: int
    labels: Mapping[str, str]


def use_idle_time(processors: int) -> None:
    """Runs this thread, and what it starts, at idle priority, on a few processors.

    Args:
        processors: The most, of those that it may run on.

    Raises:
        ValueError: It is not positive.
    """
    if processors < 1:
        raise ValueError(f"processors is {processors}, and has to be positive")
    mine = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, mine[-processors:])
    with suppress(OSError):  # where it is not allowed, niceness is
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.nice(19)


class Demoter:
    """Demotes the artefacts of a folder, one after the other, with one client. Not thread safe.

    What was kept or has failed is not tried again by the same object.
    """

    _MOST_ERRORS = 5

    def __init__(self, folder: StoreFolder, client: Client, demotion: Demotion) -> None:
        """Takes the folder, what compresses, and what to make of artefacts."""
        self._folder, self._client, self._demotion = folder, client, demotion
        self._settled: set[str] = set()

    def run(self) -> Demoted:
        """Goes through the folder once, those first that were not used for longest.

        Raises:
            OSError: The folder cannot be locked or written.
            UnavailableError: The service does not answer.
        """
        done = Demoted()
        for entry in sorted(self._old(), key=lambda each: each.used):
            try:
                before = os.lstat(entry.path)
            except FileNotFoundError:
                continue
            times = (before.st_atime_ns, before.st_mtime_ns)
            try:
                size = self._demote(entry, times)
            except UnavailableError:
                raise
            except (KVCompressError, ForeignFileError, NoArtefactError, ValueError) as error:
                done.failed += 1
                self._settled.add(entry.path)
                if len(done.errors) < self._MOST_ERRORS:
                    done.errors += (f"{os.path.relpath(entry.path, self._folder.root)}: {error}",)
                size = None
            if size:
                done.artefacts += 1
                done.before_bytes += entry.bytes
                done.bytes += size
            else:
                done.kept += size == 0
                with suppress(OSError):  # to be read here is no use
                    os.utime(entry.path, ns=times)
        return done

    def _old(self) -> Iterator[Entry]:
        """Yields the artefacts that were not used for long enough, and may become smaller."""
        before = self._folder.now() - self._demotion.older_than
        for entry in self._folder.entries():
            if entry.used <= before and entry.path not in self._settled:
                yield entry

    def _demote(self, entry: Entry, times: tuple[int, int]) -> int | None:
        """Demotes an artefact; returns what it takes then, 0 if it is kept, None if it need not be.

        Raises:
            ForeignFileError: It is no file.
            KVCompressError: It cannot be restored or compressed.
            NoArtefactError: It is no artefact.
            ValueError: Its tensors have several layouts.
        """
        made = _made(metadata_of(entry.path))
        blocks = blocks_of(entry.path) if entry.is_run else ()
        if made.rung >= self._demotion.rung or not _leads_to(entry, blocks):
            return None
        self._check_room(made.bytes)
        options: CompressArguments = {
            "codec": self._demotion.codec,
            "effort": self._demotion.effort,
            "layout": made.layout,
            "labels": made.labels,
            "metrics": "basic",
            "report_tensors": False,
        }
        if self._demotion.profile is not None:
            options["profile"] = self._demotion.profile
        with self._folder.staged() as restored, self._folder.staged() as smaller:
            self._client.decompress(Path(entry.path), Path(restored), expected_labels=made.labels)
            self._client.compress(Path(restored), Path(smaller), **options)
            size = self._folder.replace(entry, smaller, blocks, times)
        if not size:
            self._settled.add(entry.path)
        return size

    def _check_room(self, size: int) -> None:
        """Keeps an artefact from filling the disk, which may be of zeros that take no space.

        Raises:
            ValueError: So many bytes are too many.
        """
        found = os.statvfs(self._folder.root)
        most = min(_MOST_BYTES, found.f_bavail * found.f_frsize // 2)
        if size > most:
            raise ValueError(f"it restores to {size} bytes, and {most} are allowed")


def _leads_to(entry: Entry, blocks: tuple[str, ...]) -> bool:
    """Returns whether all blocks of a run are found in it, and none in another artefact."""
    collection = collection_of(entry.path)
    return all(
        target_of(collection, pointer_of(collection, block)) == entry.path for block in blocks
    )


def _made(metadata: Mapping[str, Any]) -> _Made:
    """Reads from a header how an artefact was made; not verified.

    Raises:
        NoArtefactError: It does not say.
        ValueError: Its tensors have several layouts.
    """
    manifest = metadata.get(_MANIFEST)
    if not isinstance(manifest, str) or not manifest:
        raise NoArtefactError("it has no manifest")
    layouts, names, size = set(), set(), 0
    for entry in manifest.split(";"):
        fields = entry.split(" ")
        viewed = fields[0].startswith("@")
        layouts.add(fields[0][1:] if viewed else "bhtd")
        size += _size(*fields[1:3])
        codecs = fields[3::_VIEW_FIELDS] if viewed else fields[:1]
        names |= {codec.partition(":")[0].partition("+")[0] for codec in codecs} - {_SAME}
    if len(layouts) != 1:
        raise ValueError(f"its tensors have the layouts {', '.join(sorted(layouts))}")
    # A codec that is not known may be smaller than all others.
    rung = max(_LADDER.get(name, max(_LADDER.values())) for name in names)
    labels = {
        key.removeprefix(_LABEL): str(value)
        for key, value in metadata.items()
        if key.startswith(_LABEL)
    }
    return _Made(rung, layouts.pop(), size, labels)


def _size(dtype: str = "", shape: str = "") -> int:
    """Returns the bytes of a tensor, from two fields of the manifest.

    Raises:
        NoArtefactError: They are none.
    """
    try:
        return ITEM_SIZES[dtype] * math.prod(map(int, [] if shape == "-" else shape.split("x")))
    except (KeyError, ValueError) as error:
        raise NoArtefactError(f"its manifest has a tensor {dtype} {shape}") from error
