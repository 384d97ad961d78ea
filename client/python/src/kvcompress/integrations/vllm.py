# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A secondary tier of vLLM's KV offloading: blocks as artefacts in a folder.

    vllm serve MODEL --shutdown-timeout 30 --kv-transfer-config '{
      "kv_connector": "KVCompressConnector",
      "kv_connector_module_path": "kvcompress.integrations.vllm",
      "kv_role": "kv_both",
      "kv_connector_extra_config": {"folder": "/cache", "codec": "klt"}}'

Blocks go through the primary tier in host memory, which vLLM has for all its tiers, and are found
by vLLM's own block hashes: the document that another prompt began with is found again, by another
engine too. Saving, looking up and loading are asynchronous. What is damaged, or of another
model, is not there: vLLM computes it.

`kv_connector_extra_config` takes what vLLM's TieringOffloadingSpec does, and:

| name | default | |
| --- | --- | --- |
| `folder` | needed | where artefacts are kept; engines may share it |
| `server` | | address of a service; without, the engine starts its own |
| `codec`, `effort` | `auto`, `fast` | as `kvcompress.options.CompressArguments` has them |
| `profile` | | the profile of the model: its name, digest or label on the server |
| `profile_directory` | | without `server`: where the engine's own server finds profiles |
| `artefact_tokens` | 512 | tokens of an artefact, at most |
| `threads` | 2 | artefacts restored at once |
| `timeout` | by size | seconds to restore an artefact: 1, and 1 for each 25 MB |
| `store_timeout` | by size | seconds to save one: 30, and 1 for each 2 MB |
| `capacity_bytes` | half of the disk | the bound of the folder, for all engines: `"200G"` |
| `capacity_fraction` | | the same, as a part of the file system |
| `high_watermark`, `low_watermark` | 1, 0.9 | parts of it, between which is evicted |
| `ttl` | | how long an artefact is kept, such as `"7d"` |
| `locality` | | `LOCAL` or `REMOTE`, for vLLM's events |
| `identity` | | what else caches depend on, by name, such as a version of the weights |
| `page_axes` | | the axes of a page, where another attention backend has another order |
| `kernel_block_tokens` | | tokens of a kernel's block, where a page is several |
| `cpu_bytes_to_use` | 1 GiB | vLLM's own: size of the primary tier |

KVCompressTier is the tier alone, for TieringOffloadingSpec's `secondary_tiers`. Without our
connector nothing tells it of LoRA adapters: it knows them as vLLM's hashes do, by name and path.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import (  # type: ignore[import-not-found,unused-ignore]
    OffloadingConnector,
)

from kvcompress.integrations import _vllm_layouts
from kvcompress.integrations._adapters import Adapters
from kvcompress.integrations._logs import prepare_logs
from kvcompress.integrations._vllm_adapters import new_request
from kvcompress.integrations._vllm_tier import KVCompressTier

__all__ = ["KVCompressConnector", "KVCompressTier"]


class KVCompressConnector(OffloadingConnector):  # type: ignore[misc,unused-ignore]
    """vLLM's OffloadingConnector with a primary tier in host memory and a KVCompressTier.

    It passes the tier the layout of pages in memory, from what vLLM says of the model's layers and
    of the attention backend, and of each request which weights its LoRA adapter has.
    """

    def __init__(
        self,
        vllm_config: Any,  # noqa: ANN401
        role: Any,  # noqa: ANN401
        kv_cache_config: Any,  # noqa: ANN401
    ) -> None:
        """Takes what vLLM passes to every connector.

        Raises:
            OSError: A folder cannot be made, or no server can be started.
            ValueError: No folder is configured, or the engine is spread in a way that chunks
                do not tell.
        """
        prepare_logs()
        self._adapters = Adapters()
        _vllm_layouts.complete(vllm_config, kv_cache_config)
        super().__init__(vllm_config, role, kv_cache_config)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,  # noqa: ANN401
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Returns the metrics of all tiers."""
        _vllm_layouts.complete(vllm_config, None)
        return super().build_prom_metrics(vllm_config, *others, **named)

    def on_new_request(self, request: Any) -> None:  # noqa: ANN401
        """Takes a request, and finds out which weights its LoRA adapter has."""
        with new_request(self._adapters, request):
            super().on_new_request(request)

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Takes the caches; warns when they are not laid out as declared to the tier."""
        _vllm_layouts.check(self._vllm_config, self._kv_cache_config, kv_caches)
        super().register_kv_caches(kv_caches)
