# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Codecs of others, run from their own packages on the same caches. Needs torch.

transformers' QuantizedCache is run layer by layer through its own methods, with its back
ends optimum-quanto and hqq, on all tokens alike (its default keeps the newest 128 exact).
Sizes are those of the tensors that the packages keep, without any file around them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, quants
from optimum.quanto.library import get_extension
from transformers.cache_utils import Fp8QuantizedLayer, HQQQuantizedLayer, QuantoQuantizedLayer

from measure.rows import Coded

GROUP = 64
"""Values that share a scale, where a package lets one choose: its default, and the service's."""

Codec = Callable[[torch.Tensor, bool], tuple[torch.Tensor, int]]
"""Takes a tensor and whether it holds keys; returns it decoded, and the bytes it took."""


@dataclass(frozen=True)
class PeerRow:
    """A codec of another package."""

    name: str
    family: str
    version: str
    codec: Codec
    fixed: bool = True

    def code(self, path: Path, source: Mapping[str, torch.Tensor]) -> Coded:
        """See Row.code."""
        cache, size, elements = {}, 0, 0
        for name, tensor in source.items():
            decoded, took = self.codec(tensor, name.endswith("_key"))
            cache[name] = decoded.to(tensor.dtype).reshape(tensor.shape)
            size += took
            elements += tensor.numel()
        return Coded(cache, size, elements)


def _size(*tensors: torch.Tensor) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Does what the extension does that optimum-quanto would compile, for minutes, on first use."""
    return torch.cat([(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)])


def _quanto(bits: int, axis_key: int, axis_value: int) -> Codec:
    layer = QuantoQuantizedLayer(bits, axis_key, axis_value, GROUP)

    def codec(tensor: torch.Tensor, is_key: bool) -> tuple[torch.Tensor, int]:
        coded = layer._quantize(tensor, axis_key if is_key else axis_value)
        return layer._dequantize(coded), _size(coded._data._data, coded._scale, coded._shift)

    return codec


def _hqq(bits: int, axis_key: int, axis_value: int) -> Codec:
    layer = HQQQuantizedLayer(bits, axis_key, axis_value, GROUP)

    def codec(tensor: torch.Tensor, is_key: bool) -> tuple[torch.Tensor, int]:
        layer.keys = tensor  # whose type and device it takes
        coded, meta = layer._quantize(tensor, axis_key if is_key else axis_value)
        return layer._dequantize((coded, meta)), _size(coded, meta["scale"], meta["zero"])

    return codec


def _fp8() -> Codec:
    layer = Fp8QuantizedLayer()

    def codec(tensor: torch.Tensor, _is_key: bool) -> tuple[torch.Tensor, int]:
        layer.dtype = tensor.dtype
        coded, scale = layer._quantize(tensor)
        return layer._dequantize((coded, scale)), _size(coded, scale)

    return codec


def _ggml(kind: GGMLQuantizationType) -> Codec:
    def codec(tensor: torch.Tensor, _is_key: bool) -> tuple[torch.Tensor, int]:
        coded = quants.quantize(tensor.float().numpy(), kind)
        return torch.from_numpy(np.asarray(quants.dequantize(coded, kind))), coded.nbytes

    return codec


def _versions(*packages: str) -> str:
    return ", ".join(f"{package} {version(package)}" for package in packages)


def peer_rows() -> Iterator[PeerRow]:
    """Yields the peers.

    Axes are those of the packages. optimum-quanto's axis 0 and hqq's axis 1 put groups of 64
    neighbours, here one token of one head, under one scale. quanto's -1 puts 64 tokens of one
    channel there, as KIVI has it for keys; hqq's 0 does so too, but with tokens far apart.
    """
    extension: Any = get_extension("quanto_cpp")
    extension._lib = SimpleNamespace(unpack=_unpack)
    quanto = _versions("transformers", "optimum-quanto")
    hqq = _versions("transformers", "hqq")
    yield PeerRow("quanto 4-bit", "optimum-quanto", quanto, _quanto(4, 0, 0))
    yield PeerRow("quanto 4-bit, keys by channel", "optimum-quanto", quanto, _quanto(4, -1, 0))
    yield PeerRow("quanto 2-bit, keys by channel", "optimum-quanto", quanto, _quanto(2, -1, 0))
    yield PeerRow("hqq 4-bit", "hqq", hqq, _hqq(4, 1, 1))
    yield PeerRow("hqq 4-bit, axis 0 for keys", "hqq", hqq, _hqq(4, 0, 1))
    yield PeerRow("hqq 2-bit, axis 0 for keys", "hqq", hqq, _hqq(2, 0, 1))
    yield PeerRow("fp8", "transformers", _versions("transformers"), _fp8())
    for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
        yield PeerRow(kind.name.lower(), "ggml", _versions("gguf"), _ggml(kind))
