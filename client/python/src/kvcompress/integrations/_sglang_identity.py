# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Which weights the engine of SGLang around us has, of its model and of its LoRA adapters.

A storage backend is given neither. The engine's own arguments have the paths.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from kvcompress.integrations._adapters import adapter_of
from kvcompress.integrations._weights import weights_of

_LOG = logging.getLogger(__name__)


def weights(model_name: str | None) -> str:
    """Names the weights, from the path and revision that SGLang loads, or from the model's name."""
    arguments = _arguments()
    path, revision = getattr(arguments, "model_path", None), getattr(arguments, "revision", None)
    if isinstance(path, str):
        return weights_of(path, revision if isinstance(revision, str) else None)
    return weights_of(model_name) if model_name else "unknown"


def adapters() -> dict[str, str]:
    """Names the weights of all adapters of `--lora-paths`; nothing where there are none.

    SGLang's hashes of pages have the name and path of such an adapter, and which page has which
    adapter cannot be told from them: pages of all depend on all. An adapter that is loaded later
    has a random number in the hashes of its pages instead.
    """
    found: dict[str, str] = {}
    for name, path in named_paths(getattr(_arguments(), "lora_paths", None)):
        known = adapter_of(path)
        if known is None:
            _LOG.warning(
                "nothing says which weights the adapter %s has: pages of other weights under this "
                "name would be taken for its own; give identity a version of the adapter",
                path,
            )
        found[f"{name}={path}"] = known or "unknown"
    if not found:
        return {}
    return {"adapters": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()}


def named_paths(listed: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yields name and path of each adapter, in all forms that SGLang's `lora_paths` takes.

    Args:
        listed: `NAME=PATH`, a path that is the name as well, or an object with `lora_name` and
            `lora_path`; a list of these, or a mapping of names to paths.
    """
    if isinstance(listed, Mapping):
        yield from ((str(name), str(path)) for name, path in listed.items())
        return
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, str):
            name, separator, path = each.partition("=")
            yield (name, path) if separator else (each, each)
        elif isinstance(each, Mapping):
            yield str(each["lora_name"]), str(each["lora_path"])
        else:
            yield str(each.lora_name), str(each.lora_path)


def _arguments() -> Any:  # noqa: ANN401
    """Returns SGLang's arguments; None outside of an engine."""
    from sglang.srt import runtime_context  # type: ignore[import-not-found,unused-ignore]

    with suppress(Exception):  # outside of an engine SGLang has none, and says so in many ways
        return runtime_context.get_server_args()
    return None
