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

KVCompressDeviceConnector, by this name as `kv_connector`, restores artefacts straight into the
engine's own blocks and saves them from there, with the kernels of kvcompress.gpu: there is no tier
in host memory. It takes the same names, but for `locality` and `cpu_bytes_to_use`, and:

| name | default | |
| --- | --- | --- |
| `block_size` | 256 | vLLM's own: tokens of a chunk, which is stored and found whole |
| `artefact_tokens` | 2048 | |
| `profile`, `profile_directory` | | kernels read the file `NAME.profile` in the directory |
| `scratch_bytes` | 256 MiB | of the kernels' buffers on the device, about |

What the kernels do not do, the service does, and a log line says so once. What is not restored
vLLM computes, as with `kv_load_failure_policy` of `recompute`. With tensor parallelism each rank
has artefacts of its own; latents (MLA) are stored by the first one, for all.

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
from kvcompress.integrations._vllm_device import DeviceMetadata
from kvcompress.integrations._vllm_device_worker import DeviceWorker
from kvcompress.integrations._vllm_tier import KVCompressTier

__all__ = ["KVCompressConnector", "KVCompressDeviceConnector", "KVCompressTier"]


class KVCompressConnector(OffloadingConnector):  # type: ignore[misc,unused-ignore]
    """vLLM's OffloadingConnector with a primary tier in host memory and a KVCompressTier.

    It passes the tier the layout of pages in memory, from what vLLM says of the model's layers and
    of the attention backend, and of each request which weights its LoRA adapter has.
    """

    _complete = staticmethod(_vllm_layouts.complete)

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
        self._complete(vllm_config, kv_cache_config)
        super().__init__(vllm_config, role, kv_cache_config)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,  # noqa: ANN401
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Returns the metrics of all tiers."""
        cls._complete(vllm_config, None)
        return super().build_prom_metrics(vllm_config, *others, **named)

    def on_new_request(self, request: Any) -> None:  # noqa: ANN401
        """Takes a request, and finds out which weights its LoRA adapter has."""
        with new_request(self._adapters, request):
            super().on_new_request(request)

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Takes the caches; warns when they are not laid out as declared to the tier."""
        _vllm_layouts.check(self._vllm_config, self._kv_cache_config, kv_caches)
        super().register_kv_caches(kv_caches)


class KVCompressDeviceConnector(KVCompressConnector):
    """Artefacts restored into the engine's own blocks, and made of them, without a tier.

    vLLM's OffloadingConnector keeps account of blocks and transfers. It knows no transfer that
    fails: here the blocks that were not restored are reported, and computed.
    """

    _complete = staticmethod(_vllm_layouts.complete_device)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Returns the blocks that were not restored."""
        return set() if self._worker is None else self._worker.take_failed_blocks()

    def build_connector_worker_meta(self) -> DeviceMetadata | None:
        """Returns what has ended, and which chunks were not restored, for the scheduler."""
        meta = super().build_connector_worker_meta()
        if meta is None or self._worker is None:
            return None
        failed = self._worker.take_failed()
        return DeviceMetadata(meta.completed_jobs, meta.transfer_stats, failed)

    def update_connector_output(self, connector_output: Any) -> None:  # noqa: ANN401
        """Takes what workers report."""
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, DeviceMetadata):
            self.scheduler.manager.note_failed(meta.failed)
        super().update_connector_output(connector_output)

    def get_kv_connector_stats(self) -> Any:  # noqa: ANN401
        """Returns what the scheduler's side counts, or the worker's."""
        return super().get_kv_connector_stats() if self._worker is None else self._worker.stats()

    @property
    def _worker(self) -> DeviceWorker | None:
        """The worker, in the process of a rank once it has caches."""
        side = self.connector_worker
        found: DeviceWorker | None = None if side is None else side.worker
        return found
