# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The curve of presets: a table and a picture of studies before and after."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import preset_curve


def study(path: Path, model: str, ratio: float) -> Path:
    """Writes what codec_study.py would, of four rows."""

    def row(name: str, share: float) -> dict[str, Any]:
        relative = {"value": share, "error": 0.01}
        kl = {"value": share / 10, "error": 0.001}
        return {"name": name, "summary": {"ratio": ratio, "kl": kl, "kl_of_reference": relative}}

    names = ("int4", "ecsq high", "klt high", "klt high best")
    rows = [row(name, 0.1 * (i + 1)) for i, name in enumerate(names)]
    path.write_text(json.dumps({"setup": {"model": model, "windows": 4}, "rows": rows}))
    return path


def test_presets_are_beside_each_other(tmp_path: Path) -> None:
    before = [study(tmp_path / f"b{i}.json", f"model {i}", 5) for i in range(2)]
    after = [study(tmp_path / f"a{i}.json", f"model {i}", 6) for i in range(2)]
    preset_curve.main(
        ["--before", *map(str, before), "--after", *map(str, after), "--output", str(tmp_path)]
    )
    page = (tmp_path / "presets.md").read_text()
    assert (
        "| preset | model 0, before | model 0, after | model 1, before | model 1, after |" in page
    )
    cells = "| 5.00x, 30% ± 1% | 6.00x, 30% ± 1% |"
    assert f"| `klt high` {cells}{cells[1:]}" in page
    assert "best" not in page
    assert len(json.loads((tmp_path / "presets.json").read_text())) == 8
    assert (tmp_path / "presets.png").read_bytes().startswith(b"\x89PNG")
