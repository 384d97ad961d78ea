# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What reports of load say of the machine, and how they are kept."""

import datetime
import os
import platform
import re
from pathlib import Path

RESULTS = Path(__file__).with_name("results")
LICENCE = "<!-- Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0 -->"


def model() -> str:
    """Of the processor, as the kernel calls it."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def machine() -> str:
    """Processor, cores and load."""
    return (
        f"{model()}, {os.cpu_count()} processors, Linux {platform.release()}; "
        f"load average {os.getloadavg()[0]:.1f}, our own processes included"
    )


def save(name: str, text: str, folder: Path) -> Path:
    """Writes a report under today's date, and makes the folder where needed; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.date.today()}-{name}.md"
    path.write_text(f"{LICENCE}\n{text}\n")
    return path
