# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""An example of a KV connector of vLLM (V1): prompts' caches as artefacts in a folder.

    vllm serve MODEL --disable-hybrid-kv-cache-manager --kv-transfer-config '{
      "kv_connector": "KVCompressConnector",
      "kv_connector_module_path": "kvcompress.integrations.vllm",
      "kv_role": "kv_both",
      "kv_connector_extra_config": {"folder": "/cache", "codec": "int4-hadamard"}}'

The cache of a prompt, up to its last full block, is compressed once it has been computed,
and loaded for a later prompt with the same tokens. It is an example: it looks for whole
prompts, saves and loads while the engine waits, and deletes nothing. Requests with LoRA or
with other inputs than tokens are left alone. A file that is damaged, or of another model, is
reported to vLLM as blocks that could not be loaded.
"""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # type: ignore[import-not-found,unused-ignore]
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from kvcompress._client import Client
from kvcompress.errors import KVCompressError
from kvcompress.options import CompressArguments

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transfer:
    """Blocks to load or to save.

    Attributes:
        digest: Of the tokens.
        blocks: Numbers of the blocks, in the order of the tokens.
        skipped: How many of these, at the beginning, need not be loaded.
    """

    digest: str
    blocks: tuple[int, ...]
    skipped: int = 0


@dataclass
class Transfers(KVConnectorMetadata):  # type: ignore[misc,unused-ignore]
    """What the scheduler asks of the workers for one step."""

    loads: list[Transfer] = field(default_factory=list)
    saves: list[Transfer] = field(default_factory=list)


@dataclass
class Prompt:
    """A request whose cache is being computed: what it will be saved as."""

    digest: str
    tokens: int
    blocks: list[int]


class KVCompressConnector(KVConnectorBase_V1):  # type: ignore[misc,unused-ignore]
    """Saves the caches of prompts, and loads them.

    Its configuration: `folder`, shared by all workers and the scheduler; `server`, the address
    of a service, else each worker starts its own; and `codec` as
    `kvcompress.options.CompressArguments` has it.
    """

    def __init__(
        self,
        vllm_config: Any,  # noqa: ANN401
        role: KVConnectorRole,
        kv_cache_config: Any,  # noqa: ANN401
    ) -> None:
        """Takes what vLLM gives every connector.

        Raises:
            ValueError: The model's layers are not all of one kind with dense keys and values,
                or no folder is configured.
            OSError: No server can be started.
        """
        super().__init__(vllm_config, role, kv_cache_config)
        self._layers, self._spec = _dense_layers(kv_cache_config)
        extra = dict(vllm_config.kv_transfer_config.kv_connector_extra_config)
        if "folder" not in extra:
            raise ValueError("kv_connector_extra_config needs a folder")
        self._folder = Path(extra.pop("folder"))
        server = extra.pop("server", None)
        self._options: CompressArguments = {"report_tensors": False}
        if "codec" in extra:
            self._options["codec"] = extra["codec"]
        parallel = vllm_config.parallel_config
        self._ranks, self._rank = parallel.world_size, parallel.rank
        self._identity = {
            "vllm.model": str(vllm_config.model_config.model),
            "vllm.revision": str(vllm_config.model_config.revision),
            "vllm.dtype": str(self._spec.dtype),
        }
        self._client = None if role is KVConnectorRole.SCHEDULER else Client(server)
        self._prompts: dict[str, Prompt] = {}
        self._loads: dict[str, tuple[str, int, int]] = {}  # digest, computed and all tokens
        self._states: dict[str, torch.Tensor] = {}
        self._failed: set[int] = set()

    # Scheduler.

    def get_num_new_matched_tokens(
        self,
        request: Any,  # noqa: ANN401
        num_computed_tokens: int,
    ) -> tuple[int | None, bool]:
        """Gives the number of tokens that a file has beyond those computed, and False."""
        tokens = self._whole(request.prompt_token_ids)
        if not _is_plain(request) or tokens <= num_computed_tokens:
            return 0, False
        if not self._is_saved(_digest(request.prompt_token_ids[:tokens])):
            return 0, False
        return tokens - num_computed_tokens, False

    def update_state_after_alloc(
        self,
        request: Any,  # noqa: ANN401
        blocks: Any,  # noqa: ANN401
        num_external_tokens: int,
    ) -> None:
        """Notes a request whose blocks are to be loaded."""
        if num_external_tokens > 0:
            tokens = self._whole(request.prompt_token_ids)
            digest = _digest(request.prompt_token_ids[:tokens])
            self._loads[request.request_id] = (digest, tokens - num_external_tokens, tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Transfers:  # noqa: ANN401
        """Gives what the workers are to load before this step and to save after it."""
        transfers = Transfers()
        computed = {}
        for new in scheduler_output.scheduled_new_reqs:
            tokens = self._whole(new.prompt_token_ids)
            blocks = list(new.block_ids[0])
            if new.req_id in self._loads:
                transfers.loads.append(self._load(new.req_id, blocks))
            elif tokens and _is_plain(new):
                digest = _digest(new.prompt_token_ids[:tokens])
                self._prompts[new.req_id] = Prompt(digest, tokens, blocks)
                computed[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            added = list((cached.new_block_ids[index] or ([],))[0])
            if request_id in cached.resumed_req_ids:
                self._prompts.pop(request_id, None)
                if request_id in self._loads:
                    transfers.loads.append(self._load(request_id, added))
            elif request_id in self._prompts:
                self._prompts[request_id].blocks += added
                computed[request_id] = cached.num_computed_tokens[index]
        for request_id, before in computed.items():
            prompt = self._prompts[request_id]
            if before + scheduler_output.num_scheduled_tokens[request_id] >= prompt.tokens:
                del self._prompts[request_id]
                if not self._is_saved(prompt.digest):
                    count = prompt.tokens // self._spec.block_size
                    saved = tuple(prompt.blocks[:count])
                    transfers.saves.append(Transfer(prompt.digest, saved))
        for request_id in scheduler_output.finished_req_ids:
            self._prompts.pop(request_id, None)
            self._loads.pop(request_id, None)
        return transfers

    # Workers.

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Loads what this step needs; returns when it is there."""
        transfers = self._get_connector_metadata()
        for load in transfers.loads:
            layers = forward_context.no_compile_layers
            try:
                self._fill(load, [layers[name].kv_cache for name in self._layers])
            except (KVCompressError, OSError, ValueError) as error:
                _LOG.warning("a prompt is not loaded, but computed: %s", error)
                self._failed.update(load.blocks[load.skipped :])

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Has nothing to wait for."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Keeps a layer's view, [blocks, heads, block_size, K and V], for `wait_for_save`."""
        self._states[layer_name] = kv_layer

    def wait_for_save(self) -> None:
        """Saves what this step completed; a prompt that cannot be is not there later."""
        states, self._states = self._states, {}
        for save in self._get_connector_metadata().saves:
            try:
                self._save(save, [states[name] for name in self._layers])
            except (KVCompressError, OSError, KeyError) as error:
                _LOG.warning("a prompt is not saved: %s", error)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Gives the blocks that could not be loaded since the last call."""
        failed, self._failed = self._failed, set()
        return failed

    def shutdown(self) -> None:
        """Ends the worker's server, if it has its own."""
        if self._client is not None:
            self._client.close()

    # What both use.

    def _whole(self, token_ids: list[int] | None) -> int:
        """Gives how many tokens of a prompt fill blocks; the last token is always computed."""
        size = int(self._spec.block_size)
        return max(0, len(token_ids or []) - 1) // size * size

    def _path(self, digest: str, rank: int) -> Path:
        """Gives the file of a worker."""
        own = _digest([*self._identity.values(), self._spec.block_size, self._ranks])
        return self._folder / f"{own[:16]}-{digest}-{rank}.kvc.safetensors"

    def _is_saved(self, digest: str) -> bool:
        """Tells whether every worker's file is there."""
        return all(self._path(digest, rank).exists() for rank in range(self._ranks))

    def _load(self, request_id: str, blocks: list[int]) -> Transfer:
        """Gives the load of a request that has been noted."""
        digest, computed, tokens = self._loads.pop(request_id)
        size = self._spec.block_size
        return Transfer(digest, tuple(blocks[: tokens // size]), computed // size)

    def _labels(self, digest: str) -> dict[str, str]:
        """Gives what is bound to a file."""
        return {**self._identity, "vllm.tokens": digest, "vllm.rank": str(self._rank)}

    def _fill(self, load: Transfer, caches: list[torch.Tensor]) -> None:
        """Restores blocks into the views of all layers, after every check."""
        if self._client is None:
            raise RuntimeError("the scheduler does not load")
        size = self._spec.block_size
        tensors = self._client.decompress(
            self._path(load.digest, self._rank),
            tokens=(load.skipped * size, len(load.blocks) * size),
            expected_labels=self._labels(load.digest),
        ).torch_tensors()
        count = len(load.blocks) - load.skipped
        pages = []
        for index, cache in enumerate(caches):
            parts = [tensors[f"layer_{index}_{part}"][0] for part in ("key", "value")]
            states = torch.cat(parts, dim=-1)  # [heads, tokens, K and V]
            page = states.view(states.shape[0], count, size, -1).transpose(0, 1)
            if page.shape[1:] != cache.shape[1:] or page.dtype != cache.dtype:
                raise ValueError("the file is of another layout")
            pages.append(page)
        for cache, page in zip(caches, pages, strict=True):
            cache[torch.tensor(load.blocks[load.skipped :])] = page.to(cache.device)

    def _save(self, save: Transfer, caches: list[torch.Tensor]) -> None:
        """Compresses blocks of all layers into a file."""
        if self._client is None:
            raise RuntimeError("the scheduler does not save")
        tensors = {}
        for index, cache in enumerate(caches):
            states = cache[torch.tensor(save.blocks)].transpose(0, 1).flatten(1, 2)[None]
            keys, values = states.split([self._spec.head_size, self._spec.head_size_v], dim=-1)
            tensors[f"layer_{index}_key"], tensors[f"layer_{index}_value"] = keys, values
        options: CompressArguments = {**self._options, "labels": self._labels(save.digest)}
        self._client.compress(tensors, self._path(save.digest, self._rank), **options)


def _dense_layers(kv_cache_config: Any) -> tuple[list[str], Any]:  # noqa: ANN401
    """Gives the names of the layers and what vLLM says of their blocks."""
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise ValueError(f"{len(groups)} groups of layers: only one is supported")
    spec = groups[0].kv_cache_spec
    if type(spec).__name__ != "FullAttentionSpec":
        raise ValueError(f"{type(spec).__name__} layers are not supported")
    dense = spec.dtype in {torch.float32, torch.float16, torch.bfloat16}
    packed = getattr(spec, "state_content_bytes", None), getattr(spec, "num_head_slots", None)
    if not dense or packed != (None, None):
        raise ValueError("only dense keys and values of 16 or 32 bits are supported")
    return list(groups[0].layer_names), spec


def _is_plain(request: Any) -> bool:  # noqa: ANN401
    """Tells whether a request's cache depends on its tokens alone."""
    return not (request.mm_features or request.lora_request or _embeds(request))


def _embeds(request: Any) -> bool:  # noqa: ANN401
    """Tells whether a request has embeddings in place of tokens."""
    return getattr(request, "prompt_embeds", None) is not None


def _digest(values: Iterable[object]) -> str:
    """Gives an identity of a list of numbers and words."""
    return hashlib.sha256("\n".join(map(repr, values)).encode()).hexdigest()[:40]
