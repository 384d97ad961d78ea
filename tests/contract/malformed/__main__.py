# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the corpus to a directory, one file for each case."""

import sys
from pathlib import Path

from malformed.cases import CASES


def main() -> None:
    """Writes the files."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        (directory / f"{case.name}.safetensors").write_bytes(case.data)


if __name__ == "__main__":
    main()
