# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes and encodes artefacts on a GPU.

    decoder = kvcompress.gpu.Decoder("model.profile", "cuda")
    decoded = decoder.decode(artefact)
    decoded.tensors["layer_0_key"]  # on the GPU
    decoded.fallbacks  # what the host restored instead, and why

Needs torch and Triton, the extra `gpu`.
"""

try:
    import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    import triton  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"kvcompress.gpu needs {error.name}: pip install 'kvcompress[gpu]'", name=error.name
    ) from error

from kvcompress.gpu._decoded import Decoded
from kvcompress.gpu._decoder import Decoder
from kvcompress.gpu._encoder import Encoded, Encoder

__all__ = ["Decoded", "Decoder", "Encoded", "Encoder"]
