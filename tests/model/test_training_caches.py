# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Caches to train profiles from: as kv-compress takes them, from three texts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).parents[2]


def test_a_profile_of_the_caches(bin_dir: Path, tmp_path: Path) -> None:
    """Two windows of each text; the profile has seen all of them."""
    caches = tmp_path / "caches"
    command = [sys.executable, str(ROOT / "validation" / "training_caches.py")]
    command += ["--tokens", "96", "--windows", "2", "--output", str(caches)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python" / "src")}
    subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True)
    files = sorted(caches.iterdir())
    assert len(files) == 6
    command = [str(bin_dir / "kv-compress"), "-train-profile", str(tmp_path / "model.profile")]
    command += ["-train-contract", "-model-label", "tiny", "-profile-layers", "1", *map(str, files)]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["training"].startswith(f"caches=6 tokens={6 * 92} ")
    assert len(report["groups"]) == 30
