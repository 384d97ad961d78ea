# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which weights a model has: caches of others at the same path are not its own."""

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_LOG = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz"}
_SAMPLES, _MORE_SAMPLES, _SAMPLE_BYTES = 16, 4096, 4096
_DIGITS = 32


def weights_of(model: str, revision: str | None = None, commit: str | None = None) -> str:
    """Names the weights of a model: a commit of the hub, or a digest of the files.

    The digest is of names, sizes, modification times, and 16 samples of 4 KiB of each file. So a
    copy is the same model where it keeps the times (`cp -a`, `rsync -a`).

    Args:
        model: A folder, a file, or a name on the Hugging Face hub.
        revision: What the engine was asked to load.
        commit: The commit that it has loaded, where it knows.

    Returns:
        `commit:` or `files:` and a digest; `unknown:` and the model, with a warning, where nothing
        says.
    """
    path = Path(model)
    if path.exists():
        real = path.resolve()
        files = [real] if real.is_file() else sorted(_files(real))
        if (known := identity_of(real, files)) is not None:
            return known
    else:
        for known in (commit, revision, cached_commit(model, revision)):
            if known is not None and _COMMIT.fullmatch(known):
                return f"commit:{known}"
    _LOG.warning(
        "nothing says which weights %s has: artefacts of other weights under this name would be "
        "taken for its own; give identity a version of the weights, or the engine a commit as "
        "revision",
        model,
    )
    return f"unknown:{model}"


def identity_of(real: Path, files: Sequence[Path]) -> str | None:
    """Returns `commit:` for a snapshot of the hub, `files:` and a digest for others.

    Args:
        real: A folder without links, or a file.
        files: Those in it, in an order that does not change.

    Returns:
        None where there are no files.

    Raises:
        OSError: One cannot be read.
    """
    if real.parent.name == "snapshots" and _COMMIT.fullmatch(real.name):
        return f"commit:{real.name}"
    return f"files:{_digest(real, files)}" if files else None


def declared(identity: Mapping[str, object]) -> dict[str, str]:
    """Returns what a configuration says of identity, by names that no engine's own have."""
    return {f"identity.{name}": str(value) for name, value in identity.items()}


def content_of(path: str) -> str:
    """Returns a digest of a file's size and of 4,096 samples of 4 KiB, not of its name and time.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}\n".encode())
        for sample in _samples(file, size, _MORE_SAMPLES):
            digest.update(sample)
    return digest.hexdigest()[:_DIGITS]


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files of weights in a folder."""
    for path in folder.iterdir():
        if path.suffix in _SUFFIXES and path.is_file():
            yield path


def _digest(root: Path, files: Sequence[Path]) -> str:
    """Returns the digest of what is known of files without reading all of them."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            name = path.name if path == root else str(path.relative_to(root))
            digest.update(f"{name} {found.st_size} {found.st_mtime_ns}\n".encode())
            for sample in _samples(file, found.st_size):
                digest.update(sample)
    return digest.hexdigest()[:_DIGITS]


def _samples(file: BinaryIO, size: int, count: int = _SAMPLES) -> Iterator[bytes]:
    """Yields parts of a file, from its beginning to its end."""
    last = max(0, size - _SAMPLE_BYTES)
    for index in range(count):
        file.seek(last * index // (count - 1))
        yield file.read(_SAMPLE_BYTES)


def cached_commit(model: str, revision: str | None = None) -> str | None:
    """Returns the commit that the hub's cache on this machine has of a model; None for none."""
    reference = cached_folder(model) / "refs" / (revision or "main")
    with suppress(OSError, ValueError):
        found = reference.read_text().strip()
        return found if _COMMIT.fullmatch(found) else None
    return None


def cached_folder(model: str) -> Path:
    """Returns where the hub's cache on this machine has a model, if it has it."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    return hub / f"models--{model.replace('/', '--')}"
