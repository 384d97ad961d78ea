# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The LoRA adapter of a request, which vLLM's offloading does not pass to tiers.

A connector is given the request; a tier is given its context, made by the same call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kvcompress.integrations._adapters import Adapters


@dataclass(frozen=True)
class Adapter:
    """Which adapter a request has.

    Attributes:
        weights: What its blocks depend on; None where nothing says which weights it has.
    """

    weights: str | None


_current: ContextVar[Adapter | None] = ContextVar("adapter", default=None)


@contextmanager
def new_request(adapters: Adapters, request: Any) -> Iterator[None]:  # noqa: ANN401
    """Makes `take` find the adapter of a request of vLLM within a block."""
    lora = request.lora_request
    token = _current.set(None if lora is None else Adapter(adapters.of(lora.lora_path)))
    try:
        yield
    finally:
        _current.reset(token)


def take(req_context: Any) -> None:  # noqa: ANN401
    """Keeps the adapter of the request that is new in its context."""
    adapter = _current.get()
    if adapter is not None:
        req_context.set_state(adapter)


def adapter_of(req_context: Any) -> Adapter | None:  # noqa: ANN401
    """Returns the adapter that `take` has kept; None for the model alone."""
    adapter: Adapter | None = req_context.get_state(Adapter)
    return adapter
