# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs engines, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from processes import GENERATED

_PROGRAM = Path(__file__).with_name("vllm_engine.py")


def run_engine(
    extra: dict[str, Any] | None,
    requests: list[Any],
    model: str = "",
    dtype: str = "bfloat16",
    **arguments: object,
) -> tuple[list[Any], dict[str, float]]:
    """Returns what vllm_engine.py answers to prompts, and the tier's counters; see run_job."""
    result = run_job(extra, requests, model, dtype, arguments)
    return result["results"], result["counters"]


def run_job(
    extra: dict[str, Any] | None,
    requests: list[Any],
    model: str = "",
    dtype: str = "bfloat16",
    arguments: Mapping[str, object] | None = None,
    **more: object,
) -> dict[str, Any]:
    """Returns the output of vllm_engine.py.

    Args:
        extra: The connector's configuration; None for an engine without.
        requests: As vllm_engine.py has them.
        model: The folder of another model than SmolLM2.
        dtype: What the engine computes in.
        arguments: More of the engine.
        more: Of the job.
    """
    job = {
        "model": model or os.environ["KVCOMPRESS_ENGINE_MODEL"],
        "dtype": dtype,
        "extra": None if extra is None else {"cpu_bytes_to_use": 1 << 28, **extra},
        "tokens": GENERATED,
        "max_model_len": 2048,
        "requests": requests,
        "arguments": dict(arguments or {}),
        **more,
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
    result: dict[str, Any] = json.loads(done.stdout)
    return result
