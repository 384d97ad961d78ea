# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the scheduler's side of a connector finds."""

import time
from collections.abc import Sequence
from typing import Any

from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    LookupResult,
)


def are_there(side: Any, keys: Sequence[bytes], context: Any) -> list[bool]:  # noqa: ANN401
    """Returns which chunks a manager or a tier finds, as vLLM's scheduler asks: again and again."""
    while True:
        found = [side.lookup(key, context) for key in keys]
        if LookupResult.RETRY not in found:
            side.on_request_finished(context)
            return [each == LookupResult.HIT for each in found]
        side.on_schedule_end(None)
        time.sleep(0.01)
