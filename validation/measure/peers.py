# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Codecs of others, run from their own packages on the same caches. Needs torch.

transformers' QuantizedCache is run layer by layer through its own methods, with its back
ends optimum-quanto and hqq, on all tokens alike (its default keeps the newest 128 exact).
Sizes are those of the tensors that the packages keep, without any file around them.

vLLM and LMCache have an environment of their own, that of tests/engines, and a process in it, which
is measure.engine_peers.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, quants
from optimum.quanto.library import get_extension
from safetensors.torch import load_file
from transformers.cache_utils import Fp8QuantizedLayer, HQQQuantizedLayer, QuantoQuantizedLayer

from compression_bridge import REPOSITORY
from measure.rows import Coded, Row

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


class Engines:
    """The process with vLLM and LMCache, which ends with this one."""

    def __init__(self) -> None:
        """Starts it; the first time of all, this makes its environment.

        Raises:
            CalledProcessError: There is none, and it could not be made.
        """
        make: list[str | Path] = [REPOSITORY / "deploy/python-env", "--no-deps"]
        made = subprocess.run(
            [*make, REPOSITORY / "tests/engines/requirements.txt"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process = subprocess.Popen(
            [Path(made.stdout.strip(), "bin", "python"), "-m", "measure.engine_peers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "validation")},
        )
        self.codecs: list[dict[str, str]] = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None  # noqa: S101  a pipe
        if answer := self._process.stdout.readline():
            return answer
        raise subprocess.CalledProcessError(self._process.wait(), self._process.args)

    def code(self, codec: str, path: Path, target: Path) -> int:
        """Writes what a codec makes of a file; returns the bytes that it took.

        Raises:
            CalledProcessError: The process has ended; it said why on standard error.
        """
        assert self._process.stdin is not None  # noqa: S101  a pipe
        print(json.dumps([codec, str(path), str(target)]), file=self._process.stdin, flush=True)
        return int(self._answer())


@cache
def engines() -> Engines:
    """Returns the process, started when it is first asked for."""
    return Engines()


@dataclass(frozen=True)
class EngineRow:
    """A codec of vLLM or LMCache."""

    name: str
    family: str
    version: str
    fixed: bool = True

    def code(self, path: Path, source: Mapping[str, torch.Tensor]) -> Coded:
        """See Row.code."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "restored.safetensors")
            size = engines().code(self.name, path, target)
            return Coded(load_file(target), size, sum(each.numel() for each in source.values()))


def engine_rows() -> Iterator[EngineRow]:
    """Yields the codecs of vLLM and LMCache."""
    for codec in engines().codecs:
        yield EngineRow(codec["name"], codec["family"], codec["version"])


def named(names: Iterable[str]) -> list[Row]:
    """Returns peers by their names; vLLM and LMCache are started for theirs alone.

    Raises:
        ValueError: There is none of that name.
    """
    found: dict[str, Row] = {row.name: row for row in peer_rows()}
    if set(names) - found.keys():
        found |= {row.name: row for row in engine_rows()}
    if unknown := set(names) - found.keys():
        raise ValueError(f"no peers {sorted(unknown)}; there are: {', '.join(found)}")
    return [found[name] for name in names]


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
