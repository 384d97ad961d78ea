# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The resident memory of a running process in bytes, as Linux counts it."""

import re
from pathlib import Path


def resident(pid: int) -> int:
    """What a process has resident now."""
    return _status(pid, "VmRSS")


def peak(pid: int) -> int:
    """The most that it has had so far."""
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found, f"process {pid} has ended"
    return int(found[1]) * 1024
