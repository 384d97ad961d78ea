# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""SGLang's storage interface, its factory of backends, its host pools and its controller on a CPU.

Its wheel alone is installed: to import SGLang as a whole takes its kernels and a GPU. The modules
that the tests run are SGLang's own, unchanged. Those below that they import, and do not need for
host memory, are replaced by objects that answer every name; they say that there is no GPU.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

_STAND_INS = (
    "sglang.kernels.ops.kvcache.hicache",
    "sglang.kernels.ops.kvcache.hisparse",
    "sglang.kernels.ops.kvcache.mla_buffer",
    "sglang.srt.layers.dcp.layout",
    "sglang.srt.layers.dp_attention",
    "sglang.srt.mem_cache.l2_transfer",
    "sglang.srt.mem_cache.memory_pool",
    "sglang.srt.platforms",
    "sglang.srt.runtime_context",
    "sglang.srt.utils",
    "sglang.srt.utils.aio_rwlock",
    "sglang.srt.utils.common",
)
_PLATFORMS = ("cpu", "cuda", "hip", "mps", "musa", "npu", "xpu")


def prepare() -> bool:
    """Lets `import sglang.srt.mem_cache...` work; returns whether SGLang is there."""
    if "sglang" in sys.modules:
        return True
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        return False
    package = ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["sglang"] = package
    for name in _STAND_INS:
        for parent in _parents(name):
            sys.modules.setdefault(parent, _stand_in(parent))
        sys.modules[name] = _stand_in(name)
    return True


def _parents(name: str) -> Iterator[str]:
    """Yields the packages that a stand-in is in, and that would import more."""
    while (name := name.rpartition(".")[0]).startswith(("sglang.kernels", "sglang.srt.layers")):
        yield name


def _stand_in(name: str) -> Any:  # noqa: ANN401
    """Returns a module that answers every name, and no to every question for a GPU."""
    stand_in = MagicMock(name=name)
    stand_in.__path__ = []
    stand_in.__spec__ = None
    for platform in _PLATFORMS:
        setattr(stand_in, f"is_{platform}", lambda: False)
    return stand_in


def module(name: str) -> Any:  # noqa: ANN401
    """Returns a module of SGLang's own."""
    return importlib.import_module(f"sglang.srt.{name}")


def part(name: str, definition: str) -> ModuleType:
    """Returns a module with one dataclass of SGLang's, where the whole cannot be imported."""
    path = Path(sys.modules["sglang"].__path__[0], *name.split(".")[1:]).with_suffix(".py")
    [found] = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == definition
    ]
    names = ast.parse("from dataclasses import dataclass, field\nfrom typing import *").body
    made = ModuleType(name)
    compiled = compile(ast.Module([*names, found], []), str(path), "exec")
    exec(compiled, made.__dict__)  # noqa: S102
    return made


def options() -> set[str]:
    """Returns the names of SGLang's server options, as its list has them."""
    path = Path(sys.modules["sglang"].__path__[0], "srt", "arg_groups", "field_order.py")
    tree = ast.parse(path.read_text())
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
