# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Looks vLLM's keys up on a thread of its own."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    LookupResult,
)
from vllm.v1.kv_offload.tiering.async_lookup import (  # type: ignore[import-not-found,unused-ignore]
    AsyncLookupManager,
)

AreThere = Callable[[Sequence[bytes], Any], Iterable[bool]]
"""For keys and the context of a request, whether there is an artefact of each."""


class Lookup(AsyncLookupManager):  # type: ignore[misc,unused-ignore]
    """vLLM's own manager of look-ups, which asks a function."""

    def __init__(self, name: str, are_there: AreThere) -> None:
        """Starts the thread, with a name for people."""
        self._are_there = are_there
        super().__init__(tier_type=name)

    def batch_lookup(
        self,
        keys: list[bytes],
        req_context: Any,  # noqa: ANN401
    ) -> Iterable[bool]:
        """Returns for each key whether there is an artefact."""
        return self._are_there(keys, req_context)

    def result(self, key: bytes, req_context: Any) -> LookupResult:  # noqa: ANN401
        """Returns whether there is an artefact of a key; RETRY until that is known."""
        found = self.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS
