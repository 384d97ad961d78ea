# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which weights a LoRA adapter has: caches of others at the same path are not its own.

Engines know an adapter by its name and path. So one that was trained further at its path has the
hashes of blocks that the one before had.
"""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvcompress.integrations._weights import cached_commit, cached_folder, identity_of

_LOG = logging.getLogger(__name__)

_CONFIG = "adapter_config.json"  # with the rank and the scale
_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth"}


def adapter_of(path: str) -> str | None:
    """Names the weights of an adapter, by its files.

    Args:
        path: As an engine takes it: a folder, or a name on the Hugging Face hub.

    Returns:
        `commit:`, or `files:` and a digest of names, sizes, modification times and 16 samples of
        4 KiB of each file; None where this machine has none.
    """
    try:
        folder = _folder(path)
        return None if folder is None else identity_of(folder, list(_files(folder)))
    except OSError:
        return None


class Adapters:
    """The adapters of an engine that runs. Thread safe.

    An engine keeps the weights that it has loaded, whatever becomes of the files, and does not say
    when it has loaded them. Files that have not changed since it started are those that it has
    loaded. Which ones it has of others is not known, and they have no identity.
    """

    def __init__(self) -> None:
        """Takes this moment for the start of the engine."""
        self._started = time.time()
        self._lock = threading.Lock()
        self._known: dict[str, tuple[_Look | None, str | None]] = {}

    def of(self, path: str) -> str | None:
        """Returns what `adapter_of` does; None where nothing says what is loaded, with a warning.

        Looks at the times of all files, and reads samples of them the first time.
        """
        look = _look(path)
        with self._lock:
            known = self._known.get(path)
            if known is None:
                is_loaded = look is not None and look.changed < self._started
                known = look, adapter_of(path) if is_loaded else None
                if known[1] is None:
                    _warn(path)
            elif known[1] is not None and look != known[0]:
                known = look, None
                _warn(path)
            self._known[path] = known
        return known[1]


@dataclass(frozen=True)
class _Look:
    """What the file system says of the files of an adapter.

    Attributes:
        files: Of each the path, the size and the times of modification and change.
        changed: When one of them, or the link to them, changed last, in seconds since the epoch.
    """

    files: tuple[tuple[str, int, int, int], ...]
    changed: float


def _look(path: str) -> _Look | None:
    """Looks at the files of an adapter; None where there are none."""
    try:
        folder = _folder(path)
        if folder is None:
            return None
        found = [(str(each), each.stat()) for each in _files(folder)]
        given = Path(path).expanduser()
        changed = [given.lstat().st_ctime] if given.is_symlink() else []
    except OSError:
        return None
    changed += [stat.st_ctime for _, stat in found]
    files = tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in found)
    return _Look(files, max(changed)) if files else None


def _folder(path: str) -> Path | None:
    """Returns the folder of an adapter, without links; None where this machine has none."""
    given = Path(path).expanduser()
    if not given.exists():
        commit = cached_commit(path)
        if commit is None:
            return None
        given = cached_folder(path) / "snapshots" / commit
    return given.resolve(strict=True)


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files that an adapter's weights depend on, by their names."""
    for path in sorted(folder.iterdir()):
        if path.suffix in _SUFFIXES or path.name == _CONFIG:
            yield path


def _warn(path: str) -> None:
    """Says that the blocks of an adapter are not kept."""
    _LOG.warning(
        "the files of the adapter %s are newer than this engine, or missing: nothing says which "
        "weights it has loaded; its blocks are neither stored nor restored until the engine is "
        "started again",
        path,
    )
