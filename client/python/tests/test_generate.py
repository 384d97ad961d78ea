# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The committed code of the API is what the definitions give."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(PACKAGE / "generate"), str(tmp_path)], check=True)
    committed, fresh = PACKAGE / "src" / "kvcompress" / "v1", tmp_path / "kvcompress" / "v1"
    names = {path.name for path in committed.iterdir() if path.suffix in (".py", ".pyi")}
    assert names == {path.name for path in fresh.iterdir()}
    for name in names:
        assert (committed / name).read_text() == (fresh / name).read_text(), name
