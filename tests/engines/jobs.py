# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs engines, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import GENERATED

_PROGRAM = Path(__file__).with_name("vllm_engine.py")


def run_engine(
    extra: dict[str, Any],
    requests: list[Any],
    model: str = "",
    dtype: str = "bfloat16",
    **arguments: object,
) -> tuple[list[Any], dict[str, float]]:
    """Gives what vllm_engine.py answers to prompts, and the tier's counters.

    Args:
        extra: The connector's configuration.
        requests: As vllm_engine.py has them.
        model: The folder of another model than SmolLM2.
        dtype: What the engine computes in.
        arguments: More of the engine.
    """
    job = {
        "model": model or os.environ["KVCOMPRESS_ENGINE_MODEL"],
        "dtype": dtype,
        "extra": {"cpu_bytes_to_use": 1 << 28, **extra},
        "tokens": GENERATED,
        "max_model_len": 2048,
        "requests": requests,
        "arguments": arguments,
    }
    # Threads that wait for each other on processors that others use as well hardly get on.
    alone = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    environment = {**alone, **os.environ, **own}
    done = subprocess.run(
        [sys.executable, _PROGRAM],
        input=json.dumps(job).encode(),
        capture_output=True,
        env=environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    print(done.stdout.decode())
    result = json.loads(done.stdout)
    return result["results"], result["counters"]
