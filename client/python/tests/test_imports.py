# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The names of the package are imported when they are used."""

import ast
import graphlib
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import kvcompress

PACKAGE = Path(kvcompress.__file__).parent


def run(program: str) -> str:
    """Runs a program in a fresh interpreter."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    return done.stdout


def public_names() -> list[str]:
    """What `from kvcompress import *` imports."""
    names: list[str] = kvcompress.__all__  # type: ignore[attr-defined]
    return names


def module_name(path: Path) -> str:
    """The name by which a file of the package is imported."""
    parts = ["kvcompress", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def needed_modules(path: Path, module: str, modules: Collection[str]) -> Iterator[str]:
    """The modules of the package that a module imports, and the packages that this imports too."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    package = [*module.split("."), *(["__init__"] if path.stem == "__init__" else [])]
    for node in ast.walk(tree):
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: -node.level] if node.level else []
            base += [node.module] if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names]
            found = [name if name in modules else ".".join(base) for name in names]
        for name in found:
            outer = [name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)]
            outer = [each for each in outer if not f"{module}.".startswith(f"{each}.")]
            yield from (each for each in [name, *outer] if each in modules and each != module)


def test_the_launcher_imports_no_client() -> None:
    """It becomes the native program, which needs nothing of this."""
    program = "import sys, kvcompress.__main__; print({'grpc', 'numpy', 'google'} & {*sys.modules})"
    assert run(program) == "set()\n"


def test_torch_and_triton_are_for_the_gpu_alone() -> None:
    """And where one of them is missing, the error says what to install."""
    program = (
        "import sys, kvcompress; kvcompress.Client; print({'torch', 'triton'} & {*sys.modules})"
    )
    assert run(program) == "set()\n"
    program = """
import sys
sys.modules["torch"] = None
try:
    import kvcompress.gpu
except ImportError as error:
    print(error)
"""
    assert run(program) == "kvcompress.gpu needs torch: pip install 'kvcompress[gpu]'\n"


def test_no_module_imports_itself_through_others() -> None:
    """Nor by an import within a function, which hides a cycle; types alone may refer back."""
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    graph = {module: {*needed_modules(path, module, paths)} for module, path in paths.items()}
    assert graph["kvcompress.store._demotion"] >= {"kvcompress._client", "kvcompress.store._folder"}
    assert graph["kvcompress.payload._klt"] >= {"kvcompress.payload._codec"}, "relative ones too"
    graphlib.TopologicalSorter(graph).prepare()


def test_every_name_is_what_type_checkers_see() -> None:
    """From the same module, in the form that exports it, and no other names."""
    tree = ast.parse((PACKAGE / "_public.py").read_text())
    imports = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert len(imports) == len(tree.body) - 1, "one a line, after the text at the top"
    assert sorted([*imports, "__version__", "aio", "payload"]) == public_names()
    for name, module in imports.items():
        assert getattr(kvcompress, name) is getattr(sys.modules[str(module)], name)
    [checking] = [
        node
        for node in ast.parse((PACKAGE / "__init__.py").read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    assert [ast.unparse(node) for node in checking.body] == [
        "from kvcompress import aio as aio",
        "from kvcompress import payload as payload",
        "from kvcompress._public import *",
    ]


def test_star_dir_and_a_name_that_there_is_not() -> None:
    assert run("from kvcompress import *; print(Client.__name__, aio.__name__)") == (
        "Client kvcompress.aio\n"
    )
    modules = {"aio", "connection", "errors", "options", "payload", "profiles", "store"}
    public = sorted({*public_names()} | modules)
    assert run("import kvcompress; print(dir(kvcompress))") == f"{public}\n"
    assert dir(kvcompress) == public, "with modules imported that are not"
    program = f"import kvcompress; print(*(getattr(kvcompress, m).__name__ for m in {modules}))"
    assert {*run(program).split()} == {f"kvcompress.{module}" for module in modules}
    assert run(f"{program}; import sys; print('torch' in sys.modules)").endswith("False\n")
    with pytest.raises(AttributeError, match="'kvcompress' has no attribute 'Clients'"):
        kvcompress.Clients  # type: ignore[attr-defined]  # noqa: B018
