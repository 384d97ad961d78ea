# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A save of kvcompress.store that is killed at each of its system calls, by strace.

client/python/tests/test_store_crashes.py does the same at what Python reports, in seconds.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
CLIENT_TESTS = Path(__file__).parents[2] / "client" / "python" / "tests"
sys.path.append(str(CLIENT_TESTS))

from store_crashes import faults, prepare  # noqa: E402

# What changes a folder or a lock, or begins to; a read or a look changes nothing.
CALLS = (
    "openat,write,pwrite64,rename,renameat2,unlink,unlinkat,mkdir,rmdir,utimensat,flock,fsync,link,"
    "linkat,ftruncate,close"
)
MARK = "getpriority"  # the call before the save, which nothing else makes
PROGRAM = """
import os, sys
from pathlib import Path
from store_crashes import save_until
os.getpriority(os.PRIO_PROCESS, 0)
save_until(Path(sys.argv[1]), 0)
"""


def command(folder: Path, *strace: object) -> list[str]:
    """A save under strace."""
    return [*map(str, strace), sys.executable, "-c", PROGRAM, str(folder)]


def run(folder: Path, *strace: object) -> "subprocess.CompletedProcess[str]":
    """Runs a save; its modules are where this process found them."""
    modules = os.pathsep.join([str(CLIENT_TESTS), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command(folder, *strace), capture_output=True, text=True, env=environment, timeout=60
    )


def points(log: Path) -> Iterator[tuple[str, int]]:
    """Yields each system call of the save, and its number among those of its name."""
    seen: Counter[str] = Counter()
    saving = False
    for line in log.read_text().splitlines():
        found = re.match(r"(?:\d+ +)?(\w+)\(", line)
        if found is None:
            continue
        name = found[1]
        saving = saving or name == MARK
        seen[name] += 1
        if saving and name != MARK:
            yield name, seen[name]


def test_killed_at_each_system_call(tmp_path: Path) -> None:
    """After a sweep nothing is left and nothing is lost, whichever it was."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: apt install strace")
    folder, log = tmp_path / "store", tmp_path / "calls"
    prepare(folder)
    done = run(folder, strace, "-o", log, "-e", f"trace={CALLS},{MARK}")
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    tried = list(points(log))
    assert len(tried) > 50
    wrong, alive = {}, 0
    for name, number in tried:
        prepare(folder)
        kill = f"inject={name}:signal=SIGKILL:when={number}"
        done = run(folder, strace, "-o", "/dev/null", "-e", f"trace={name}", "-e", kill)
        alive += done.returncode == 0
        if found := faults(folder):
            wrong[f"{name} {number}"] = found
    print(f"{len(tried)} system calls, {alive} of them after the last change")
    assert wrong == {}
    assert alive < len(tried) // 10, "a few calls more or less are made from run to run"
