# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Codecs that hold a tensor take no more memory than they say, and servers reserve."""

import re
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from calls import MIB, OpenStream
from process_memory import peak
from safetensors.numpy import save_file
from server_process import BINARY, Start, environment

SHAPE = (1, 8, 16384, 128)
SIZE = 32 * MIB
# Codecs whose numbers are announced, with what of each is the heaviest.
CHOICES = {"ecsq": ("contract", "high"), "klt": ("contract", "ultra"), "auto": ("",)}
ROLES = ("key", "value")


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tensor of 32 MiB of BF16 for each role, whose tokens have something in common."""
    folder = tmp_path_factory.mktemp("caches")
    random = np.random.default_rng(1)
    tokens = random.standard_normal((SHAPE[2], 16), np.float32)
    mixed = tokens @ random.standard_normal((16, SHAPE[1] * SHAPE[3]), np.float32) / 4
    mixed += 0.25 * random.standard_normal(mixed.shape, np.float32)
    heads = mixed.reshape(SHAPE[2], *SHAPE[1:2], SHAPE[3]).swapaxes(0, 1)
    tensor = heads.astype(ml_dtypes.bfloat16).reshape(SHAPE)
    paths = {}
    for role in ROLES:
        paths[role] = folder / f"{role}.safetensors"
        save_file({f"layer_0_{role}": tensor}, paths[role])
    return paths


def peak_of(start: Start, cache: Path, codec: str) -> int:
    """The most that a server of its own has resident, which measures a cache."""
    server = start("--memory-budget-bytes", str(256 * MIB))
    command = [str(BINARY.with_name("kv-compress")), "-input", str(cache), "-metrics-only"]
    command += ["-server", server.addresses[0], "-codec", codec]
    # 2 says that bounds were missed.
    done = subprocess.run(command, env=environment({}), capture_output=True)
    assert done.returncode in (0, 2), done.stderr
    return peak(server.pid)


def announced(start: Start, codec: str) -> int:
    """Bytes that a server reserves for each byte of a tensor."""
    server = start("--memory-budget-bytes", str(17 * MIB))
    with server.channel() as channel:
        message = OpenStream(channel, codec, 32 * MIB).error().details() or ""
    return int(re.findall(rf"{codec} takes (\d+) bytes for each byte", message)[0])


@pytest.mark.parametrize("codec", CHOICES)
def test_no_more_than_is_announced(start: Start, caches: dict[str, Path], codec: str) -> None:
    """And, within the next whole number, no less: a server is not to refuse what fits."""
    most = announced(start, codec)
    grown = 0.0
    for cache in caches.values():
        base = peak_of(start, cache, "int4")
        for preset in CHOICES[codec]:
            name = f"{codec}:{preset}" if preset else codec
            growth = (peak_of(start, cache, name) - base) / SIZE
            print(f"{name}, {cache.stem}: {growth:.2f} bytes for each byte")
            grown = max(grown, growth)
    assert most - 1.5 < grown <= most
