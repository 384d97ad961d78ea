# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run without a device: all of it but the device, so that it works where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents import claimed_line

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

RUN = Path(__file__).resolve().parents[1] / "gpu" / "run"


def test_a_dry_run_passes_and_says_that_it_is_one(bin_dir: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "KVCOMPRESS_BIN_DIR": str(bin_dir)}
    command = claimed_line("gpu, dry").split()
    tests = RUN.parents[1]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tests)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "DRY RUN: no device is used, and times say nothing."
    assert lines[-1] == "passed"
    assert sum(line.endswith(" 0 wrong") for line in lines) == 6
    assert sum(line.startswith("DRY RUN without a device") for line in lines) == 2
    rows = [line.split("|")[1:3] for line in lines if line.startswith("| ")]
    names = [each.strip() for row in rows for each in row if not each.strip().isdecimal()]
    assert names[4:8] == ["klt-profile, blocks of 16", "int8", "int4", "ecsq:high"]
    assert names[-7:-4] == ["computing", "uncompressed", "int4"]
    assert names[-4:] == ["ecsq", "klt", "lossless", "klt:max with a profile"]


def test_without_a_device_it_says_what_to_do() -> None:
    hidden = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([RUN], capture_output=True, text=True, env=hidden)
    assert (done.returncode, done.stdout.strip()) == (
        3,
        "there is no device that torch can use: tests/gpu/run --dry runs without one",
    )
    assert subprocess.run([RUN, "--fast"], capture_output=True).returncode == 2
