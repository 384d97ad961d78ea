# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the safetensors library of Hugging Face says of a file."""

from typing import Any

import safetensors


def deserialize(file: bytes) -> dict[str, dict[str, Any]]:
    """Opens a file; returns `dtype`, `shape` and `data` of each tensor, in no order.

    Raises:
        safetensors.SafetensorError: The library refuses the file.
    """
    return dict(safetensors.deserialize(file))  # type: ignore[no-untyped-call]
