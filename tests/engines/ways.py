# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Where time_to_first_token.py has an engine keep its cache: nowhere, in files, behind a link."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from processes import Daemon, LMCache, Process, free_port, lmcache_options

HERE = Path(__file__).parent
LINK = "1 Gb/s, "
_BITS = 1e9
_HOST = {
    "spec_name": "HostTieringSpec",
    "spec_module_path": "kvcompress.integrations._vllm_host",
}
_LAYOUT = {"layout": "cpu_attn", "head_dim": 64, "block_tokens": 128}
_NO_WAIT = 60  # seconds that no call takes: what is measured is not what a timeout is
# Files are to come from the disk, not from the system's cache of files.
_FORGET = """
import os, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    if path.is_file() and not path.is_symlink():
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
"""


class Way:
    """What an engine is given.

    Attributes:
        job: More of the job of vllm_engine.py.
        between: Requests to it after each prompt.
    """

    def __init__(self, job: dict[str, Any], between: list[dict[str, Any]]) -> None:
        """Takes both."""
        self.job, self.between = job, between

    def ratio(self, counters: dict[str, float]) -> float | None:
        """Returns how much smaller what is kept is; None where it is as large."""
        raw, stored = (
            sum(v for name, v in counters.items() if f"{kind}_bytes" in name and "save" in name)
            for kind in ("raw", "artefact")
        )
        return raw / stored if stored else None


class LinkWay(Way):
    """With LMCache, whose chunks are in Redis, behind a link."""

    def __init__(self, lmcache: LMCache) -> None:
        """Takes the server that the engine has."""
        extra = lmcache_options(lmcache.port)
        job = {"connector": "LMCacheMPConnector", "module": None, "extra": extra}
        program = "import sys, processes; processes.clear(int(sys.argv[1]))"
        clear = [sys.executable, "-c", program, lmcache.http_port]
        super().__init__(job, [{"reset": False}, {"run": list(map(str, clear))}])
        self._lmcache = lmcache

    def ratio(self, counters: dict[str, float]) -> float | None:
        """Asks LMCache."""
        [status] = self._lmcache.statuses()
        if not status.get("stored_bytes"):
            return None
        return float(status["source_bytes"] / status["stored_bytes"])


@contextmanager
def open_way(name: str, profile: Path | None) -> Iterator[Way]:
    """Yields a way: `compute`, `raw`, a codec, and `1 Gb/s, ` before the last two."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if name.startswith(LINK):
            yield LinkWay(_lmcache(stack, folder, name.removeprefix(LINK)))
        elif name == "compute":
            yield Way({"extra": None}, [{"reset": True}])
        else:
            forget = {"run": [sys.executable, "-c", _FORGET, str(folder)]}
            yield Way(_with_files(name, folder, profile), [{"reset": True}, forget])


def _with_files(name: str, folder: Path, profile: Path | None) -> dict[str, Any]:
    """Returns the job of an engine with a tier of files."""
    size = {"cpu_bytes_to_use": 1 << 29}
    if name == "raw":
        tiers = {"secondary_tiers": [{"type": "fs", "root_dir": str(folder)}]}
        return {"connector": "OffloadingConnector", "module": None, "extra": size | _HOST | tiers}
    codec, _, with_profile = name.partition(", ")
    extra = {**size, "folder": str(folder), "codec": codec, "timeout": _NO_WAIT}
    if with_profile and profile is not None:
        extra |= {"profile": profile.stem, "profile_directory": str(profile.resolve().parent)}
    return {"extra": extra}


def _lmcache(stack: ExitStack, folder: Path, codec: str) -> LMCache:
    """Starts LMCache with an adapter for Redis, behind a link."""
    link, port = free_port(), free_port()
    tool = [str(HERE.parent / "tools" / "redis")]
    redis = subprocess.run(tool, check=True, capture_output=True, text=True).stdout.strip()
    quiet = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", port]
    stack.enter_context(Process(folder / "redis.log", redis, *quiet))
    stack.enter_context(
        Process(folder / "link.log", sys.executable, HERE / "link.py", link, port, _BITS)
    )
    time.sleep(1)
    adapter: dict[str, object] = {"type": "resp", "host": "127.0.0.1", "port": link}
    if codec != "raw":
        daemon = stack.enter_context(Daemon(folder))
        waits = {"socket_timeout": _NO_WAIT}
        params = {
            **_LAYOUT,
            "url": f"redis://127.0.0.1:{link}/0",
            "storage_options": waits,
            "codec": codec,
            "server": daemon.target,
            "timeout": _NO_WAIT,
        }
        adapter = {
            "type": "plugin",
            "module_path": "kvcompress.integrations.lmcache",
            "class_name": "KVCompressAdapter",
            "adapter_params": params,
        }
    lmcache: LMCache = stack.enter_context(LMCache(folder, adapter))
    lmcache.ready()
    return lmcache
