# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the native kv-compress for the training of profiles."""

import subprocess
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from safetensors.torch import (  # type: ignore[import-not-found,unused-ignore]
    load_file,
    save_file,
)

from kvcompress._programs import find_program
from kvcompress.profiles._model import Cache
from kvcompress.profiles._report import Expectation

_NAME = "kv-compress"


class NativeError(RuntimeError):
    """The native program is missing, or it failed; with its message."""


def find() -> Path:
    """Returns the path of kv-compress.

    Raises:
        NativeError: It is missing.
    """
    program = find_program(_NAME)
    if program is None:
        raise NativeError(
            f"there is no {_NAME} to run: install the Debian package or build it with "
            "deploy/build, then put it on the PATH or name its folder in KVCOMPRESS_BIN_DIR"
        )
    return Path(program)


def run(arguments: Sequence[str | Path]) -> None:
    """Runs kv-compress.

    Raises:
        NativeError: It is missing or fails.
    """
    command = [str(find()), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise NativeError(done.stderr.strip() or f"{_NAME} ended with {done.returncode}")


def write_cache(cache: Cache, path: Path) -> None:
    """Writes a cache as BF16, as kv-compress reads it."""
    tensors = {
        f"layer_{i}_{role}": tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for i, pair in enumerate(cache)
        for role, tensor in zip(("key", "value"), pair, strict=True)
    }
    save_file(tensors, path)


def read_cache(path: Path, device: torch.device) -> Cache:
    """Reads a cache, as binary32."""
    tensors = load_file(path)
    return [
        (
            tensors[f"layer_{i}_key"].to(device, torch.float32),
            tensors[f"layer_{i}_value"].to(device, torch.float32),
        )
        for i in range(len(tensors) // 2)
    ]


def restored(
    source: Path, codec: Sequence[str | Path], profile: Path | None, folder: Path
) -> tuple[Path, float]:
    """Compresses a cache and decompresses it.

    Args:
        source: The cache.
        codec: The flags for it.
        profile: The profile, if there is one.
        folder: Where to put files.

    Returns:
        What came back, and the ratio of sizes.

    Raises:
        NativeError: kv-compress fails.
    """
    small, back = folder / "small.safetensors", folder / "restored.safetensors"
    using: list[str | Path] = [] if profile is None else ["-profile", profile]
    run([*using, *codec, "-input", source, "-output", small])
    run([*using, "-decompress", "-input", small, "-output", back])
    return back, source.stat().st_size / small.stat().st_size


def train(
    output: Path,
    label: str,
    caches: Sequence[Path],
    *,
    presets: Sequence[tuple[str, float, Expectation | None]],
    metric: Path | None = None,
    basis: Path | None = None,
    layers: int = 10,
    components: int = 1024,
    note: str = "",
) -> None:
    """Trains a profile from caches, or writes one with the basis of another.

    Raises:
        NativeError: kv-compress fails.
    """
    listed = ",".join(
        f"{name}={step:.9g}"
        + (":".join(["", *(f"{number:.9g}" for number in astuple(e))]) if e else "")
        for name, step, e in presets
    )
    flags: list[str | Path] = ["-train-profile", output, "-force", "-model-label", label]
    flags += ["-train-presets", listed]
    if basis is not None:
        flags += ["-train-basis", basis]
    else:
        flags += ["-profile-layers", str(layers), "-profile-components", str(components)]
        flags += ["-train-note", note]
        flags += [] if metric is None else ["-train-metric", metric]
    run([*flags, *caches])
