# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""KV Compress: compresses KV caches of LLM inference with measured quality.

    with kvcompress.Client("127.0.0.1:50051") as client:
        report = client.compress("cache.safetensors", "small.safetensors").report
        client.decompress("small.safetensors", "restored.safetensors")

`kvcompress.Client()` starts a server of its own, `kvcompress.aio.Client` is for asyncio.
`kvcompress.payload` reads artefacts without the service.
"""

# Imported on first use, so that `python -m kvcompress` starts without gRPC and NumPy. What is
# public is listed in _public.py, besides these modules, which need no more packages than it.
from importlib import import_module
from typing import TYPE_CHECKING

from kvcompress._version import __version__ as __version__

if TYPE_CHECKING:
    from kvcompress import aio as aio
    from kvcompress import payload as payload
    from kvcompress._public import *  # noqa: F403

_SUBMODULES = {"aio", "connection", "errors", "options", "payload", "profiles", "store"}


if not TYPE_CHECKING:  # else every name would be one to a type checker

    def __getattr__(name: str) -> object:
        """Imports a name on its first use (PEP 562)."""
        if name in _SUBMODULES:
            return import_module(f"kvcompress.{name}")
        if name == "__all__":
            return sorted({*_names(), "__version__", "aio", "payload"})
        if name.startswith("_") or name not in _names():
            raise AttributeError(f"module 'kvcompress' has no attribute {name!r}")
        value = _names()[name]
        globals()[name] = value
        return value


def _names() -> dict[str, object]:
    """Returns what _public.py lists."""
    public = vars(import_module("kvcompress._public"))
    return {name: value for name, value in public.items() if not name.startswith("_")}


def __dir__() -> list[str]:
    """Lists what is public, imported or not."""
    return sorted({*_names(), *_SUBMODULES, "__version__"})
