# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Rows that take a codec apart: without a step of it, misled, or with more hints. Needs torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file, save

import kvcompress
from measure import injection
from measure.injection import Cache
from measure.rows import Coded
from measure.study import Study

ASKED = 64
"""Tokens at the end of the prefix whose queries say what they look at."""


@dataclass(frozen=True)
class Variant:
    """A codec of the service with options of its own.

    Attributes:
        first: Tokens that are left out of the tensors, and kept as they are.
        attention: Returns the option `attention` for a cache file.
    """

    client: kvcompress.Client
    name: str
    version: str
    options: dict[str, Any] = field(default_factory=dict)
    first: int = 0
    attention: Callable[[Path], dict[int, list[float]]] | None = None
    family: str = "KV Compress"
    fixed: bool = False

    def code(self, path: Path, source: Mapping[str, Any]) -> Coded:
        """See Row.code. With `first`, size and values are those of the tokens that are coded."""
        options = dict(self.options)
        if self.attention is not None:
            options["attention"] = self.attention(path)
        data: Path | bytes = path
        if self.first:
            part = {name: each[:, :, self.first :].contiguous() for name, each in source.items()}
            data = save(part)
        result = self.client.compress(data, **options)
        restored = load(self.client.decompress(result.artefact or b"").safetensors or b"")
        if self.first:
            for name, each in restored.items():
                restored[name] = torch.cat([source[name][:, :, : self.first], each], dim=2)
        return Coded(restored, result.report.compressed_size_bytes, result.report.metrics.elements)


def real_attention(study: Study) -> Callable[[Path], dict[int, list[float]]]:
    """Returns what the queries of the newest tokens look at: octaves of each token, by layer.

    That is what an engine knows that keeps statistics of its attention. The model runs with
    attention that can be read, on the prefix alone.
    """

    def measured(path: Path) -> dict[int, list[float]]:
        index = next(i for i in range(len(study.windows)) if study.cache_file(i) == path)
        prefix, _, _ = injection.split(study.windows[index].tokens, study.setting.prefix)
        model = study.model
        own: Cache = load_file(path)
        start = prefix.shape[1] - ASKED
        cache = injection.to_cache(model, [{k: v[:, :, :start] for k, v in own.items()}])
        usual = model.config._attn_implementation
        model.set_attn_implementation("eager")
        try:
            with torch.inference_mode():
                output = model(
                    prefix[:, start:], past_key_values=cache, output_attentions=True, use_cache=True
                )
        finally:
            model.set_attn_implementation(usual)
        shares = [each[0].mean(dim=(0, 1)) for each in output.attentions]
        return {
            layer: torch.log2(share.clamp(min=2.0**-20)).tolist()
            for layer, share in enumerate(shares)
        }

    return measured
