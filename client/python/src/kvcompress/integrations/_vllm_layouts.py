# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What vLLM says of a model's layers, as the layouts and the configuration of our tier.

A chunk of the primary tier has a part for each rank; in it, one behind the other, the pages of
each layer, in the order of the groups' layers. Layers of several groups that share memory share a
place. vLLM's OffloadingConnector asks for the layout LBHNC, so that a page has heads outermost:
[heads, tokens, keys and values, channels] on GPUs. The backend for CPUs takes the same bytes
for [heads, keys and values, tokens, channels].
"""

import functools
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from vllm import _custom_ops as ops  # type: ignore[import-not-found,unused-ignore]
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import (  # type: ignore[import-not-found,unused-ignore]
    build_offloading_config,
    get_offloading_group_ids,
)
from vllm.platforms import current_platform  # type: ignore[import-not-found,unused-ignore]
from vllm.v1.attention.backends.cpu_attn import (  # type: ignore[import-not-found,unused-ignore]
    _get_attn_isa,
)
from vllm.v1.kv_cache_interface import (  # type: ignore[import-not-found,unused-ignore]
    AttentionSpec,
    FullAttentionSpec,
    KVQuantMode,
    MLAAttentionSpec,
)

from kvcompress.integrations._pages import PageLayout
from kvcompress.integrations._weights import declared, weights_of
from kvcompress.store import OPTION_NAMES

_LOG = logging.getLogger(__name__)

DEVICE = "kvcompress_device"
"""Where `kv_connector_extra_config` has what `complete` passes to a DeviceSpec."""
TIER = {"type": "KVCompressTier", "module_path": "kvcompress.integrations.vllm"}
_SERVICE = ("server", "codec", "effort", "profile", "profile_directory")
_OPTIONS = (
    *_SERVICE,
    "folder",
    "artefact_tokens",
    "threads",
    "timeout",
    "store_timeout",
)
_PRIMARY_BYTES = 1 << 30
_CHUNK_TOKENS = 256
_FLOATS = ("bfloat16", "float16", "float32")  # that kernels decode and encode
_BITS = 3  # of numbers that all types of caches hold exactly
_FP8 = {
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}
_PASSING = {"_commit_hash", "_name_or_path", "transformers_version", "dtype", "torch_dtype"}


def complete(vllm_config: Any, kv_cache_config: Any) -> None:  # noqa: ANN401
    """Adds our tier to the configuration of vLLM's connector.

    Args:
        vllm_config: Of the engine; its `kv_connector_extra_config` is changed.
        kv_cache_config: Of this process; None where only metrics are asked for.

    Raises:
        ValueError: No folder is configured, or the engine is spread in a way that chunks do
            not tell.
    """
    extra = vllm_config.kv_transfer_config.kv_connector_extra_config
    extra.setdefault("cpu_bytes_to_use", _PRIMARY_BYTES)
    if current_platform.is_cpu():
        extra["spec_name"] = "HostTieringSpec"
        extra["spec_module_path"] = "kvcompress.integrations._vllm_host"
    else:
        extra["spec_name"] = "TieringOffloadingSpec"
    tier = {**TIER, **_configured(vllm_config, kv_cache_config, ("locality",))}
    others = [each for each in extra.get("secondary_tiers", []) if each["type"] != tier["type"]]
    extra["secondary_tiers"] = [tier, *others]


def complete_device(vllm_config: Any, kv_cache_config: Any) -> None:  # noqa: ANN401
    """Makes vLLM's connector one without tiers, that computes what was not restored.

    Args:
        vllm_config: Of the engine; its `kv_transfer_config` is changed.
        kv_cache_config: As for `complete`.

    Raises:
        ValueError: As `complete`, or it has caches that only the tier keeps.
    """
    transfer = vllm_config.kv_transfer_config
    transfer.kv_load_failure_policy = "recompute"
    extra = transfer.kv_connector_extra_config
    extra |= {"spec_name": "DeviceSpec", "spec_module_path": "kvcompress.integrations._vllm_device"}
    if "blocks_per_chunk" not in extra:
        extra.setdefault("block_size", _CHUNK_TOKENS)
    groups = [] if kv_cache_config is None else kv_cache_config.kv_cache_groups
    kinds = [type(group.kv_cache_spec) for group in groups]
    if kinds not in ([], [FullAttentionSpec], [MLAAttentionSpec]):
        names = ", ".join(sorted({kind.__name__ for kind in kinds}))
        raise _only_the_tier(f"{len(kinds)} groups of layers, of {names}")
    extra[DEVICE] = _configured(vllm_config, kv_cache_config, ("scratch_bytes",))
    for group in extra[DEVICE].get("groups", ()):
        known = "2" in group["axes"] or group["rope_width"]
        if not known or group["dtype"] not in _FLOATS:
            raise _only_the_tier(f"pages with axes {group['axes']!r} of {group['dtype']}")


def _configured(
    vllm_config: Any,  # noqa: ANN401
    kv_cache_config: Any,  # noqa: ANN401
    more: tuple[str, ...],
) -> dict[str, Any]:
    """Returns the options, the layouts and the identity.

    Raises:
        ValueError: As `complete`.
    """
    transfer = vllm_config.kv_transfer_config
    extra = transfer.kv_connector_extra_config
    if "folder" not in extra:
        raise ValueError(f"kv_connector_extra_config needs a folder for {transfer.kv_connector}")
    found = {name: extra[name] for name in (*_OPTIONS, *more) if name in extra}
    found["store"] = {name: extra[name] for name in OPTION_NAMES if name in extra}
    if kv_cache_config is not None:
        groups = layouts(vllm_config, kv_cache_config)
        found["groups"] = [asdict(layout) for layout in groups]
        found["identity"] = identity(vllm_config)
    return found


def _only_the_tier(what: str) -> ValueError:
    """Returns the error for caches that are not those of one group with attention to all."""
    return ValueError(
        f"this model has {what}, and KVCompressDeviceConnector keeps one group of layers, of "
        f"FullAttentionSpec or MLAAttentionSpec and {', '.join(_FLOATS)}: take KVCompressConnector,"
        " or for sliding windows vLLM's disable_hybrid_kv_cache_manager, which makes one group"
    )


def layouts(vllm_config: Any, kv_cache_config: Any) -> list[PageLayout]:  # noqa: ANN401
    """Returns the layout of each group that is offloaded.

    Raises:
        ValueError: The engine is spread in a way that chunks do not show.
    """
    config = build_offloading_config(vllm_config, kv_cache_config)
    parallel = config.parallel
    if parallel.pp_size * parallel.pcp_size * parallel.dcp_size > 1:
        raise ValueError("pipeline and context parallelism are not supported")
    if config.canonical_layout or kv_cache_config.hisparse_host_num_blocks is not None:
        raise ValueError("canonical_layout and HiSparse are not supported")
    places = {
        name: (tensor.offset + index * tensor.layer_stride, tensor.block_stride)
        for tensor in kv_cache_config.kv_cache_tensors
        for index, name in enumerate(tensor.layers)
    }
    pages = config.cache.blocks_per_chunk
    offsets: dict[tuple[int, int], int] = {}
    end = 0
    for group in config.groups:
        for name in group.layer_names:
            if places[name] not in offsets:
                offsets[places[name]], end = end, end + places[name][1] * pages
    if end != config.worker_kv_bytes_per_block * pages:
        raise ValueError(
            f"{end} bytes of pages in chunks of {config.worker_kv_bytes_per_block * pages}: "
            "pages are not laid out layer by layer"
        )
    result = []
    for group_id, group in zip(
        get_offloading_group_ids(kv_cache_config), config.groups, strict=True
    ):
        [page_bytes, *more] = {places[name][1] for name in group.layer_names}
        if more:
            raise ValueError(f"layers of group {group_id} have pages of several sizes")
        spec = kv_cache_config.kv_cache_groups[group_id].kv_cache_spec
        page = _page(vllm_config, spec, page_bytes)
        result.append(
            PageLayout(
                layers=tuple(group.layer_names),
                offsets=tuple(offsets[places[name]] for name in group.layer_names),
                page_bytes=page_bytes,
                pages=pages,
                ranks=1 if config.replicated_layout else parallel.world_size,
                rank_bytes=end,
                **page,
            )
        )
    return result


def _page(vllm_config: Any, spec: Any, page_bytes: int) -> dict[str, Any]:  # noqa: ANN401
    """Returns what is in a page, as fields of PageLayout; bytes alone where vLLM packs more."""
    opaque = {"tokens": spec.block_size}
    dtype = str(getattr(spec, "dtype", "")).removeprefix("torch.")
    quantized = getattr(spec, "kv_quant_mode", KVQuantMode.NONE) != KVQuantMode.NONE
    if quantized:
        dtype = _FP8.get(vllm_config.cache_config.cache_dtype, "")
    if not isinstance(spec, AttentionSpec) or not dtype or spec.page_size_bytes != page_bytes:
        return opaque
    if (spec.state_content_bytes, spec.num_head_slots) != (None, None):
        return opaque
    if spec.tokens_per_state != 1 or spec.kv_quant_mode.is_per_token_head:
        return opaque
    if isinstance(spec, MLAAttentionSpec):
        rope = getattr(vllm_config.model_config.hf_text_config, "qk_rope_head_dim", 0)
        if quantized or not rope:
            return opaque
        return {**opaque, "width": spec.head_size, "rope_width": rope, "dtype": dtype, "axes": "sd"}
    if spec.head_size_v != spec.head_size:
        return opaque
    extra = vllm_config.kv_transfer_config.kv_connector_extra_config
    axes, transposed = extra.get("page_axes"), False
    if axes is None and current_platform.is_cpu():
        axes, found = "h2sd", cpu_keys_transposed(vllm_config, spec)
        if found is None:
            _warn_of_packed_keys()
            return opaque
        transposed = found
    axes = axes or "hs2d"
    tokens = int(extra.get("kernel_block_tokens", spec.block_size))
    kernel_blocks = spec.block_size // tokens
    return {
        "tokens": tokens,
        "kernel_blocks": kernel_blocks,
        "heads": spec.num_kv_heads,
        "width": spec.head_size,
        "dtype": dtype,
        "axes": axes if kernel_blocks == 1 or "k" in axes else "k" + axes,
        "keys_transposed": transposed,
    }


@functools.cache
def _warn_of_packed_keys() -> None:
    """Warns, once in a process, that the codec has no effect."""
    _LOG.warning(
        "the CPU backend packs keys for AMX: blocks are stored without loss, whatever the codec, "
        "and become about 1.25 times smaller"
    )


def cpu_keys_transposed(vllm_config: Any, spec: Any) -> bool | None:  # noqa: ANN401
    """Finds out by trying how the backend for CPUs lays out keys; it depends on the processor.

    Returns:
        Whether the keys of a head and block are [channels, tokens] (True) or [tokens, channels]
        (False), and the values [tokens, channels]; None for anything else.
    """
    tokens, width = spec.block_size, spec.head_size
    cache_dtype = vllm_config.cache_config.cache_dtype
    isa = _get_attn_isa(vllm_config.model_config.dtype, tokens, width, cache_dtype)
    fp8 = _FP8.get(cache_dtype)
    number = torch.arange(tokens * width).view(tokens, 1, width)
    found = torch.zeros(2, tokens * width, dtype=torch.int64)
    for shift in range(0, int(number[-1, 0, -1]).bit_length(), _BITS):
        part = ((number >> shift) & ((1 << _BITS) - 1)).to(vllm_config.model_config.dtype)
        cache = torch.zeros(1, 1, 2 * tokens, width, dtype=torch.uint8 if fp8 else part.dtype)
        keys, values = cache.chunk(2, dim=2)
        slots = torch.arange(tokens)
        ops.cpu_attn_reshape_and_cache(
            part, part, keys, values, slots, isa, kv_cache_dtype=cache_dtype
        )
        seen = cache.view(getattr(torch, fp8)) if fp8 else cache
        found |= seen.float().to(torch.int64).view(2, -1) << shift
    straight, transposed = number.flatten(), number[:, 0].T.flatten()
    if not torch.equal(found[1], straight):
        return None
    if torch.equal(found[0], transposed):
        return True
    return False if torch.equal(found[0], straight) else None


def check(
    vllm_config: Any,  # noqa: ANN401
    kv_cache_config: Any,  # noqa: ANN401
    kv_caches: Mapping[str, Any],
) -> None:
    """Checks layouts against the caches themselves, unless `page_axes` declares them.

    Raises:
        ValueError: The caches are laid out in another way. The message names the remedy.
    """
    if "page_axes" in vllm_config.kv_transfer_config.kv_connector_extra_config:
        return
    for layout in layouts(vllm_config, kv_cache_config):
        for name in layout.layers if layout.by_tokens else ():
            cache = kv_caches[name]
            shape = (layout.heads, layout.tokens, 2 * layout.width)
            is_so = isinstance(cache, torch.Tensor) and tuple(cache.shape[1:]) == shape
            if not is_so or not cache[0].is_contiguous():
                found = f"{tuple(cache.shape)}, strides {cache.stride()}" if is_so else type(cache)
                raise ValueError(
                    f"the cache of {name} is {found}, and not of contiguous pages {shape}: "
                    "declare page_axes, and kernel_block_tokens where a block is several"
                )


def identity(vllm_config: Any) -> dict[str, str]:  # noqa: ANN401
    """Returns what caches depend on other than their tokens.

    Raises:
        ValueError: What the configuration says of it is no object.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    given = vllm_config.kv_transfer_config.kv_connector_extra_config.get("identity", {})
    if not isinstance(given, Mapping):
        raise ValueError(f"identity is {given!r}, and has to be an object of names and values")
    weights = getattr(model, "model_weights", "") or model.model
    commit = getattr(model.hf_config, "_commit_hash", None)
    config = {
        name: value for name, value in model.hf_config.to_dict().items() if name not in _PASSING
    }
    return {
        **declared(given),
        "model": str(model.model),
        "revision": str(model.revision),
        "weights": weights_of(str(weights), model.revision, commit),
        "config": digest(config),
        "quantization": str(model.quantization),
        "dtype": str(model.dtype).removeprefix("torch."),
        "cache_dtype": str(cache.cache_dtype),
        "hash": str(cache.prefix_caching_hash_algo),
    }


def digest(value: object) -> str:
    """Returns the identity of a value that JSON can write."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
