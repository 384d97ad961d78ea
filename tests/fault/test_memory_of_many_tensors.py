# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What several threads hold of a call does not grow with the number of its tensors."""

from pathlib import Path

import numpy as np
import pytest
from calls import MIB
from process_memory import peak
from safetensors.numpy import save_file
from server_process import Start

from kvcompress import Client

SHAPE = (1, 8, 2048, 128)
FEW, MANY = 12, 60
# One string for each tensor would take 192 MiB more. Few are as many as are in the works at a time.
SLACK = 64 * MIB


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Caches with few and with many such tensors of F16."""
    folder = tmp_path_factory.mktemp("caches")
    values = np.random.default_rng(1).standard_normal(SHAPE, np.float32).astype(np.float16)
    paths = {}
    for count in (FEW, MANY):
        paths[count] = folder / f"{count}.safetensors"
        save_file({f"layer_{i}_key": values for i in range(count)}, paths[count])
    return paths


def growth(peaks: dict[int, int]) -> int:
    """Bytes that many tensors take beyond few."""
    print({count: f"{size / MIB:.0f} MiB" for count, size in peaks.items()})
    return peaks[MANY] - peaks[FEW]


@pytest.mark.parametrize("codec", ["ecsq", "klt"])
def test_compressing_with_reconstruction(
    start: Start, caches: dict[int, Path], tmp_path: Path, codec: str
) -> None:
    peaks = {}
    for count, cache in caches.items():
        server = start("--threads", "2")
        with Client(server.addresses[0]) as client:
            out = tmp_path / f"{count}.kvc"
            restored = tmp_path / f"{count}.restored"
            client.compress(cache, out, codec=codec, reconstruct=restored)
        peaks[count] = peak(server.pid)
    assert growth(peaks) < SLACK


@pytest.mark.parametrize("codec", ["ecsq", "int8+zstd"])
@pytest.mark.parametrize("tokens", [None, (0, 2000)])
def test_restoring(
    start: Start,
    caches: dict[int, Path],
    tmp_path: Path,
    codec: str,
    tokens: tuple[int, int] | None,
) -> None:
    peaks = {}
    for count, cache in caches.items():
        with Client(start().addresses[0]) as client:
            client.compress(cache, tmp_path / f"{count}.kvc", codec=codec)
        server = start("--threads", "2")
        with Client(server.addresses[0]) as client:
            restored = tmp_path / f"{count}.restored"
            client.decompress(tmp_path / f"{count}.kvc", restored, tokens=tokens)
        peaks[count] = peak(server.pid)
    assert growth(peaks) < SLACK
