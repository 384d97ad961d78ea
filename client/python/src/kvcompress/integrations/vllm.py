# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A secondary tier of vLLM's KV offloading: blocks as artefacts in a folder.

    vllm serve MODEL --kv-transfer-config '{
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
| `timeout` | 0.75 | seconds that restoring an artefact may take, while a request waits |
| `store_timeout` | 30 | seconds that saving an artefact may take, which nobody waits for |
| `page_axes` | | the axes of a page, where another attention backend has another order |
| `kernel_block_tokens` | | tokens of a kernel's block, where a page is several |
| `cpu_bytes_to_use` | 1 GiB | vLLM's own: size of the primary tier |

KVCompressTier is the tier alone, for TieringOffloadingSpec's `secondary_tiers`.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import (  # type: ignore[import-not-found,unused-ignore]
    OffloadingConnector,
)

from kvcompress.integrations import _vllm_layouts
from kvcompress.integrations._vllm_tier import KVCompressTier

__all__ = ["KVCompressConnector", "KVCompressTier"]


class KVCompressConnector(OffloadingConnector):  # type: ignore[misc,unused-ignore]
    """vLLM's OffloadingConnector with a primary tier in host memory and a KVCompressTier.

    It tells the tier how pages lie in memory, from what vLLM says of the model's layers and of
    the attention backend.
    """

    def __init__(
        self,
        vllm_config: Any,  # noqa: ANN401
        role: Any,  # noqa: ANN401
        kv_cache_config: Any,  # noqa: ANN401
    ) -> None:
        """Takes what vLLM gives every connector.

        Raises:
            OSError: A folder cannot be made, or no server can be started.
            ValueError: No folder is configured, or the engine is spread in a way that chunks
                do not tell.
        """
        _vllm_layouts.complete(vllm_config, kv_cache_config)
        super().__init__(vllm_config, role, kv_cache_config)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,  # noqa: ANN401
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Gives the metrics of all tiers."""
        _vllm_layouts.complete(vllm_config, None)
        return super().build_prom_metrics(vllm_config, *others, **named)

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Takes the caches; says so when they are not laid out as the tier was told."""
        _vllm_layouts.check(self._vllm_config, self._kv_cache_config, kv_caches)
        super().register_kv_caches(kv_caches)
