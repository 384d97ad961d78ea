# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The console scripts, which run the native programs; `python -m kvcompress` is `kv-compress`.

`python -m kvcompress store` shows and cleans up folders of artefacts; it is Python.
"""

import os
import sys
from typing import NoReturn

from kvcompress._programs import find_program


def main() -> NoReturn:
    """Replaces this process by kv-compress, with the same arguments; or runs `store`.

    Raises:
        SystemExit: There is no kv-compress, or it is not for this system; with the message. Or
            `store` has ended.
    """
    if sys.argv[1:2] == ["store"]:
        from kvcompress.store._command import main as run_store

        sys.exit(run_store(sys.argv[2:]))
    _become("kv-compress", "kvcompress.Client(ADDRESS) calls a server without it")


def serve() -> NoReturn:
    """Replaces this process by kv-compressd, with the same arguments.

    Raises:
        SystemExit: There is no kv-compressd, or it is not for this system; with the message.
    """
    _become("kv-compressd", "the Debian package also has a unit of systemd")


def _become(name: str, hint: str) -> NoReturn:
    program = find_program(name)
    if program is None:
        sys.exit(
            f"Error: no {name} to run: install the wheel for Linux on x86-64 or the Debian "
            "package, or build it with deploy/build, then put it on the PATH or name its folder "
            f"in KVCOMPRESS_BIN_DIR; {hint}"
        )
    try:
        os.execv(program, [str(program), *sys.argv[1:]])  # noqa: S606
    except OSError as error:
        sys.exit(f"Error: {program} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
