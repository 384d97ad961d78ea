# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the threads of another process do."""

import time
from pathlib import Path

# A thread that was just woken is not yet on its way: it is looked at again.
LOOKS = 5
GLANCE = 0.003  # seconds
PATIENCE = 60  # seconds


def works(pid: int) -> bool:
    """Whether a thread runs, or would if it had a processor."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            # The state follows the name, which is in parentheses and may have some.
            if stat.read_text().rpartition(")")[2].split()[0] in "RD":
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def wait_until_idle(pid: int) -> None:
    """Returns when it has nothing left to do, however busy the machine is."""
    deadline = time.monotonic() + PATIENCE
    idle = 0
    while idle < LOOKS:
        assert time.monotonic() < deadline, f"process {pid} is still at work"
        idle = 0 if works(pid) else idle + 1
        time.sleep(GLANCE)
