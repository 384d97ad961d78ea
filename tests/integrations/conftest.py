# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of kvcompress.integrations: the real service, and a tiny model."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
sys.path.append(str(Path(__file__).parents[1] / "deploy"))
sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from tiny_llama import model

from oracle.fixtures import bin_dir, client, sample, server

HERE = Path(__file__).parent
# Triton reads it when it is imported, by whichever test is first.
os.environ["TRITON_INTERPRET"] = "1"
__all__ = ["bin_dir", "client", "model", "sample", "server"]


def pytest_configure() -> None:
    """Puts LMCache, SGLang and Ray behind the packages of an environment that has torch alone."""
    found = {name: importlib.util.find_spec(name) for name in ("torch", "lmcache")}
    if found["torch"] is None or found["lmcache"] is not None:
        return
    command: list[str | Path] = [
        HERE.parents[1] / "deploy" / "python-env",
        "--no-deps",
        HERE / "requirements.txt",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"no environment for LMCache, SGLang and Ray:\n{done.stderr}", file=sys.stderr)
        return
    (packages,) = Path(done.stdout.strip()).glob("lib/python3*/site-packages")
    sys.path.append(str(packages))
    # For the processes that Ray starts.
    behind = [path for path in (os.environ.get("PYTHONPATH"), str(packages)) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(behind)
