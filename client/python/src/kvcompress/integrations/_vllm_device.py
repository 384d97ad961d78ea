# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""vLLM's KV offloading between the device and a folder of artefacts, without a tier between them.

vLLM's OffloadingConnector keeps account of requests, blocks and transfers; it calls the manager
in the scheduler's process, and a worker in that of each rank. A chunk is several blocks of vLLM.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (  # type: ignore[import-not-found,unused-ignore]
    OffloadingWorkerMetadata,
)
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    LookupResult,
    OffloadingManager,
    OffloadingMetricMetadata,
    OffloadingSpec,
    OffloadingWorker,
    OffloadPolicy,
    PrepareStoreOutput,
    RequestOffloadingContext,
)

from kvcompress.integrations._device_coder import DeviceCoder
from kvcompress.integrations._device_pages import DevicePages
from kvcompress.integrations._hopeless import Hopeless
from kvcompress.integrations._pages import PageLayout
from kvcompress.integrations._service import Service
from kvcompress.integrations._vllm_adapters import adapter_of, take
from kvcompress.integrations._vllm_device_worker import Chunks, DeviceWorker, Failed
from kvcompress.integrations._vllm_folders import Folders, open_store, options_of
from kvcompress.integrations._vllm_layouts import DEVICE
from kvcompress.integrations._vllm_lookup import Lookup
from kvcompress.integrations._vllm_metrics import DEFINITIONS
from kvcompress.store import ArtefactStore

_KEPT_SECONDS = 60.0  # for which an artefact that was not restored is not there
_PROFILE = ".profile"


@dataclass(frozen=True)
class Parameters:
    """What `kv_connector_extra_config` says, and what was found out of the engine.

    The names are those of kvcompress.integrations.vllm.
    """

    folder: str
    groups: Sequence[dict[str, Any]]
    identity: Mapping[str, str]
    server: str | None = None
    codec: str = "auto"
    effort: str = "fast"
    profile: str | None = None
    profile_directory: str | None = None
    artefact_tokens: int = 2048
    threads: int = 2
    timeout: float | None = None
    store_timeout: float | None = None
    scratch_bytes: int = 1 << 28
    store: dict[str, Any] | None = None

    @property
    def layout(self) -> PageLayout:
        """The layout of the one group of layers, in the memory of a rank."""
        [group] = self.groups
        return replace(PageLayout.of(group), ranks=1)

    @property
    def profile_file(self) -> Path | None:
        """The file of the profile, if this machine has it under its name."""
        if self.profile is None or self.profile_directory is None:
            return None
        file = Path(self.profile_directory) / f"{self.profile}{_PROFILE}"
        return file if file.is_file() else None

    def folders(self, store: ArtefactStore, rank: int, ranks: int) -> Folders:
        """Returns the folders of a rank: with several each has artefacts of its own heads."""
        own = {} if ranks == 1 else {"rank": f"{rank} of {ranks}"}
        return Folders(store, {**self.identity, **own}, [self.layout], self.artefact_tokens)


class DeviceSpec(OffloadingSpec):  # type: ignore[misc,unused-ignore]
    """Makes the manager and the workers, as KVCompressDeviceConnector has configured them."""

    @classmethod
    def build_metric_definitions(
        cls, extra_config: dict[str, Any]
    ) -> dict[str, OffloadingMetricMetadata]:
        """Returns the metrics of workers."""
        return DEFINITIONS

    def __init__(self, config: Any) -> None:  # noqa: ANN401
        """Takes the configuration."""
        super().__init__(config)
        self._parameters = Parameters(**config.extra_config[DEVICE])
        # Then vLLM has rank 0 alone store: all have the same latents.
        self.replicated_layout = config.replicated_layout
        self._ranks = 1 if config.replicated_layout else config.parallel.world_size

    def get_manager(self) -> OffloadingManager:
        """Returns a manager, for the scheduler.

        Raises:
            OSError: The folder cannot be used.
        """
        return DeviceManager(self._parameters, self._ranks)

    def get_worker(self, kv_caches: Any) -> OffloadingWorker:  # noqa: ANN401
        """Returns the worker of this rank.

        Raises:
            OSError: The folder or the profile cannot be used.
            ValueError: The caches are on a device of another kind.
        """
        given = self._parameters
        [refs] = kv_caches.group_data_refs
        tensors = [kv_caches.tensors[ref.tensor_idx].tensor for ref in refs]
        if tensors[0].device.type not in ("cuda", "cpu"):
            raise ValueError(f"no KVCompressDeviceConnector for {tensors[0].device}")
        pages = DevicePages(given.layout, tensors)
        server_profiles = None if given.server else given.profile_directory
        service = Service(given.server, server_profiles, threads=given.threads)
        options = options_of(given.codec, given.effort, given.profile)
        coder = DeviceCoder(pages, service, options, given.profile_file, given.scratch_bytes)
        store = open_store(given.folder, given.store)
        folders = given.folders(store, self.config.parallel.rank, self._ranks)
        timeouts = given.timeout, given.store_timeout
        return DeviceWorker(pages, coder, service, store, folders, given.threads, timeouts)


class DeviceManager(OffloadingManager):  # type: ignore[misc,unused-ignore]
    """Finds chunks in the folder, those of all ranks. vLLM's scheduler never waits."""

    def __init__(self, parameters: Parameters, ranks: int) -> None:
        """Opens the folder.

        Raises:
            OSError: It cannot be used.
        """
        self._store = open_store(parameters.folder, parameters.store)
        self._ranks = [parameters.folders(self._store, rank, ranks) for rank in range(ranks)]
        self._kept = Hopeless(_KEPT_SECONDS)
        self._lookup = Lookup("kvcompress", self._are_there)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:  # noqa: ANN401
        """Notes the request's adapter; asks for all chunks, for some may not be restored."""
        take(req_context)
        return RequestOffloadingContext(OffloadPolicy.REQUEST_LEVEL)

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:  # noqa: ANN401
        """Returns whether a chunk is there; RETRY until that is known."""
        return self._lookup.result(key, req_context)

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> Chunks:  # noqa: ANN401
        """Returns what a worker needs to restore chunks."""
        return _chunks(keys, req_context)

    def prepare_store(
        self,
        keys: Collection[bytes],
        req_context: Any,  # noqa: ANN401
    ) -> PrepareStoreOutput:
        """Returns the chunks to save: all, but for an adapter of which nothing says what it is."""
        adapter = adapter_of(req_context)
        unknown = adapter is not None and adapter.weights is None
        wanted = [] if unknown else list(keys)
        return PrepareStoreOutput(wanted, _chunks(wanted, req_context), [])

    def note_failed(self, failed: Failed) -> None:
        """Notes chunks that a worker did not restore, so that the request computes them."""
        for key in failed.kept:
            self._kept.note(key.hex())
        self._lookup.mark_miss(failed.keys)

    def on_request_finished(self, req_context: Any) -> None:  # noqa: ANN401
        """Forgets what was looked up for a request."""
        self._lookup.cleanup(req_context.req_id)

    def on_schedule_end(self, context: Any) -> None:  # noqa: ANN401
        """Lets look-ups begin."""
        self._lookup.flush()

    def shutdown(self) -> None:
        """Ends the thread."""
        self._lookup.shutdown()
        self._store.close()

    def _are_there(self, keys: Sequence[bytes], req_context: Any) -> list[bool]:  # noqa: ANN401
        """Returns for each key whether all ranks have an artefact; runs on a thread."""
        ranks = [folders.are_there(keys, req_context) for folders in self._ranks]
        return [
            all(found) and not self._kept.includes(key.hex())
            for key, *found in zip(keys, *ranks, strict=True)
        ]


@dataclass
class DeviceMetadata(OffloadingWorkerMetadata):  # type: ignore[misc,unused-ignore]
    """What workers report to the scheduler: with the transfers that ended, what was not restored.

    Attributes:
        failed: The chunks.
    """

    failed: Failed = field(default_factory=Failed)

    def aggregate(self, other: Any) -> "DeviceMetadata":  # noqa: ANN401
        """Returns what both say."""
        merged = super().aggregate(other)
        failed = Failed(self.failed.keys | other.failed.keys, self.failed.kept | other.failed.kept)
        return DeviceMetadata(merged.completed_jobs, merged.transfer_stats, failed)


def _chunks(keys: Iterable[bytes], req_context: Any) -> Chunks:  # noqa: ANN401
    """Returns chunks as workers take them."""
    found = tuple(keys)
    ends = tuple(req_context.get_offload_key_position(key) for key in found)
    return Chunks(found, ends, adapter_of(req_context))
