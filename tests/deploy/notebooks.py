# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Executes notebooks from their first cell to their last; with --save, keeps what they show.

    notebooks.py [--save] NOTEBOOK...

Needs the packages of requirements-notebooks.txt, and a kernel of this Python. What differs from
one run to the next (times of cells, ids) is not kept.
"""

import argparse
from pathlib import Path

import nbformat  # type: ignore[import-not-found,unused-ignore]
from nbclient import NotebookClient  # type: ignore[import-not-found,unused-ignore]


def execute(path: Path, save: bool) -> None:
    """Executes one, in its folder.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.resolve().parent)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    if save:
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        for cell in notebook.cells:
            cell.metadata = {}
        nbformat.write(notebook, path)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = sum("image/png" in output.get("data", {}) for output in shown)
    print(f"{path.name}: {len(notebook.cells)} cells, {pictures} pictures")


def main() -> None:
    """Executes those that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--save", action="store_true", help="keep what the notebooks show")
    parser.add_argument("notebooks", nargs="+", type=Path)
    flags = parser.parse_args()
    for path in flags.notebooks:
        execute(path, flags.save)


if __name__ == "__main__":
    main()
