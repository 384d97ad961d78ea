# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The notebooks of the Python package run in an environment of their own, and show pictures."""

import json
from pathlib import Path

import pytest
from documents import REPOSITORY, run_line

NOTEBOOKS = sorted((REPOSITORY / "client/python/examples").glob("*.ipynb"))
FILES = "client/python/requirements.txt tests/deploy/requirements-notebooks.txt"


def cells(notebook: Path) -> list[dict[str, object]]:
    """Of a notebook, as it is kept."""
    kept: list[dict[str, object]] = json.loads(notebook.read_text())["cells"]
    return kept


# The first run makes the environment.
@pytest.mark.timeout(600)
def test_notebooks_run(bin_dir: Path) -> None:
    """From their first cell to their last."""
    python = Path(run_line(f"deploy/python-env {FILES}", seconds=280).strip()) / "bin/python"
    names = " ".join(str(notebook) for notebook in NOTEBOOKS)
    # Compiling pandas and matplotlib again takes three times as long as the notebooks.
    line = f"PYTHONDONTWRITEBYTECODE= {python} tests/deploy/notebooks.py {names}"
    lines = run_line(line, seconds=280, KVCOMPRESS_BIN_DIR=str(bin_dir.resolve()))
    assert [line.split(":")[0] for line in lines.splitlines()] == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_with_what_they_show(notebook: Path) -> None:
    """After a run of all cells in their order, and without errors."""
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    text = notebook.read_text()
    assert '"output_type": "error"' not in text
    assert '"text/html"' in text
    assert len(text) < 200_000


def test_there_are_pictures() -> None:
    """At least two charts."""
    text = "".join(notebook.read_text() for notebook in NOTEBOOKS)
    assert text.count('"image/png"') >= 2
