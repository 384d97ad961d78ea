# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The names of the package are imported when they are used."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvcompress


def run(program: str) -> str:
    """Runs a program in a fresh interpreter."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    return done.stdout


def test_the_launcher_imports_no_client() -> None:
    """It becomes the native program, which needs nothing of this."""
    program = "import sys, kvcompress.__main__; print({'grpc', 'numpy', 'google'} & {*sys.modules})"
    assert run(program) == "set()\n"


def test_every_name_is_what_type_checkers_see() -> None:
    """From the same module, and no other names."""
    tree = ast.parse(Path(kvcompress.__file__).read_text())
    [checking] = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = {
        alias.name: node.module
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted([*imports, "__version__"]) == sorted(kvcompress.__all__)
    for name, module in imports.items():
        found = getattr(kvcompress, name)
        source = sys.modules.get(f"{module}.{name}") or getattr(sys.modules[str(module)], name)
        assert found is source


def test_star_dir_and_a_name_that_there_is_not() -> None:
    assert run("from kvcompress import *; print(Client.__name__, aio.__name__)") == (
        "Client kvcompress.aio\n"
    )
    assert run("import kvcompress; print({*kvcompress.__all__} <= {*dir(kvcompress)})") == "True\n"
    with pytest.raises(AttributeError, match="'kvcompress' has no attribute 'Clients'"):
        kvcompress.Clients  # type: ignore[attr-defined]  # noqa: B018
