# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A model that is tuned on a text loads as any model in a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).parents[2]


def test_a_tuned_model(tmp_path: Path) -> None:
    """A step of each of four windows; the folder is one that the studies take."""
    from measure.injection import load

    command = [sys.executable, str(ROOT / "validation" / "fine_tune.py"), "--text", "plots"]
    command += ["--tokens", "64", "--steps", "4", "--rate", "1e-4", "--output", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python" / "src")}
    done = subprocess.run(
        command, env=environment, check=True, timeout=500, capture_output=True, text=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("step ")]
    assert [line.partition(":")[0] for line in lines] == [f"step {i} of 4" for i in range(1, 5)]
    model, tokenizer = load(str(tmp_path))
    assert model.config.num_hidden_layers == 30
    assert tokenizer("text")["input_ids"]
