# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Finds the native programs: kv-compress, the command line, and kv-compressd, the server."""

import os
import re
from pathlib import Path

# What pip and uv write for an entry of [project.scripts].
_CONSOLE_SCRIPT = re.compile(rb"#!.*^from kvcompress\b", re.DOTALL | re.MULTILINE)


def find_program(name: str) -> Path | None:
    """Finds a native program.

    The console script of this package is never the answer, whatever environment it was installed
    in, so that it cannot start itself. Where there is one, the program of its wheel is.

    Args:
        name: File name of the program.

    Returns:
        The first executable file of that name: in this package's folder `bin`, in the folder that
        the environment variable KVCOMPRESS_BIN_DIR names, in the folders of PATH. None when there
        is none.
    """
    folders = [str(Path(__file__).parent / "bin"), os.environ.get("KVCOMPRESS_BIN_DIR", "")]
    for folder in (*filter(None, folders), *os.get_exec_path()):
        path = Path(folder, name)
        if not (path.is_file() and os.access(path, os.X_OK)):
            continue
        if not _is_console_script(path):
            return path
        if (program := _of_wheel(path)) is not None:
            return program
    return None


def _of_wheel(script: Path) -> Path | None:
    """Finds the program that a console script of this package starts."""
    packages = script.parent.parent.glob(f"lib/python3*/site-packages/kvcompress/bin/{script.name}")
    return next((path for path in packages if os.access(path, os.X_OK)), None)


def _is_console_script(path: Path) -> bool:
    """Returns whether a file is a console script of this package."""
    try:
        with path.open("rb") as file:
            return _CONSOLE_SCRIPT.match(file.read(4096)) is not None
    except OSError:  # may be executable and not readable
        return False
