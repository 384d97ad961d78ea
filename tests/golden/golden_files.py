# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How golden files are added: never over one that is there."""

from pathlib import Path

HERE = Path(__file__).resolve().parent


def add(path: Path, content: bytes) -> None:
    """Writes a file that is not there.

    Raises:
        SystemExit: It is there and differs.
    """
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        print(f"added {path.relative_to(HERE)}")
    elif path.read_bytes() != content:
        raise SystemExit(f"{path.relative_to(HERE)} would change")
