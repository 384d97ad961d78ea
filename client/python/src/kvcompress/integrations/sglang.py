# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
r"""A storage backend of SGLang's HiCache: pages as artefacts in a folder.

    python -m sglang.launch_server --model-path MODEL --page-size 64 --enable-hierarchical-cache \
      --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
        "backend_name": "kvcompress", "module_path": "kvcompress.integrations.sglang",
        "class_name": "KVCompressStorage", "interface_v1": 1, "folder": "/cache"}'

SGLang names each page by a hash of its tokens and of all before them. What it saves is cut into
runs of up to `artefact_tokens`: a page alone is too small for a good ratio. Any page can be loaded
alone. What is damaged, of another model, or cannot be had in time is not there: SGLang computes it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from sglang.srt.mem_cache.hicache_storage import (  # type: ignore[import-not-found,unused-ignore]
    HiCacheStorage,
    PoolHitPolicy,
    PoolName,
    PoolTransferResult,
)

from kvcompress.integrations import _sglang_identity
from kvcompress.integrations._artefact_folder import ArtefactFolder, Content
from kvcompress.integrations._logs import prepare_sglangs_logs
from kvcompress.integrations._sglang_pages import HostPages
from kvcompress.integrations._sglang_parameters import Parameters
from kvcompress.integrations._sglang_store import Backend, PoolStore, Row
from kvcompress.integrations._weights import declared

_LOG = logging.getLogger(__name__)

_KV = "kv"


@dataclass(frozen=True)
class _Pool:
    """A host pool, and where its pages are kept."""

    host: Any
    store: PoolStore

    def load(self, keys: Sequence[str], places: torch.Tensor) -> list[bool]:
        """Loads pages into the pool; returns which."""
        rows = self.store.load(keys)
        for index, row in enumerate(rows):
            if row is not None:
                self.store.pages.put(self.host, self._place(places, index), row)
        return [row is not None for row in rows]

    def save(self, keys: Sequence[str], places: torch.Tensor) -> list[bool]:
        """Saves pages of the pool that are not there yet; returns which are there."""

        def row(index: int) -> Any:  # noqa: ANN401
            return self.store.pages.row(self.host, self._place(places, index))

        return self.store.save(keys, row)

    def _place(self, places: torch.Tensor, index: int) -> int:
        """Returns the first of a page's places."""
        return int(places[index * self.host.page_size])


class KVCompressStorage(HiCacheStorage):  # type: ignore[misc,unused-ignore]
    """Keeps the pages of host pools. Thread safe.

    Pools of keys and values, or of latents, are compressed. Others, such as those of recurrent
    states or of packed types, are kept as bytes, without loss.
    """

    def __init__(self, storage_config: Any, kwargs: Mapping[str, Any] | None = None) -> None:  # noqa: ANN401
        """Takes what SGLang passes to a dynamic backend.

        Args:
            storage_config: SGLang's HiCacheStorageConfig; `Parameters` in
                `_sglang_parameters.py` documents its extra_config.
            kwargs: Nothing yet.

        Raises:
            OSError: The folder cannot be used.
            TypeError: A parameter has a name that there is not, or there is no folder.
            ValueError: A parameter has a value that it cannot have, or nothing says which model
                it is.
        """
        prepare_sglangs_logs()
        self._config = storage_config
        self._parameters = Parameters.parse(storage_config.extra_config or {})
        if not storage_config.model_name and not self._parameters.identity:
            raise ValueError("SGLang gives no model name: identity has to say which model it is")
        self._weights = _sglang_identity.weights(storage_config.model_name)
        self._adapters = _sglang_identity.adapters()
        self._backend = Backend(self._parameters)
        self._pools: dict[str, _Pool] = {}

    # Pools.

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:  # noqa: ANN401
        """Takes the pool of keys and values.

        Raises:
            OSError: Its folder cannot be made.
            ValueError: Its pages have a layout that is not known.
        """
        super().register_mem_pool_host(mem_pool_host)
        self._register(mem_pool_host, _KV)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:  # noqa: ANN401
        """Takes another pool, or that of keys and values once more.

        Raises:
            OSError: Its folder cannot be made.
            ValueError: Its pages have a layout that is not known.
        """
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(host_pool, str(host_pool_name))

    def _register(self, host: Any, name: str) -> None:  # noqa: ANN401
        """Makes a pool's folder, which ranks with the same values share."""
        config = self._config
        pages = HostPages.of(host, self._parameters.element_type)
        if not pages.axes:
            _LOG.warning("the pool %s (%s) is kept without loss", name, type(host).__name__)
        replicated = config.is_mla_model and name != PoolName.MAMBA.value
        identity = {
            **declared(self._parameters.identity),
            "engine": "sglang",
            "model": str(config.model_name),
            "weights": self._weights,
            **self._adapters,
            "pool": name,
            "format": str(getattr(host, "storage_format_tag", None)),
            **self._shards(),
        }
        heads = ["replicated"] if replicated else self._heads(split=pages.by_tokens)
        part = pages.part(len(heads))
        content = Content(part.kinds, max(1, self._parameters.artefact_tokens // pages.tokens))
        named = f"{config.model_name}-{name}"
        folders = [
            ArtefactFolder(
                self._backend.store, named, {**identity, "tp": tp, **part.identity()}, content
            )
            for tp in heads
        ]
        self._pools[name] = _Pool(host, PoolStore(self._backend, pages, folders))

    def _heads(self, *, split: bool) -> list[str]:
        """Names the groups of heads of this rank: ranks of tp_lcm_size, or the rank itself.

        Raises:
            ValueError: tp_lcm_size is no multiple of this engine's.
        """
        config = self._config
        size = (getattr(config, "tp_lcm_size", None) or config.tp_size) if split else config.tp_size
        count, odd = divmod(size, config.tp_size)
        if odd or not count:
            raise ValueError(
                f"tp_lcm_size is {size}, and has to be a multiple of the engine's {config.tp_size}"
            )
        return [f"{config.tp_rank * count + group}/{size}" for group in range(count)]

    def _shards(self) -> dict[str, str]:
        """Names this rank's share of the layers and of the tokens."""
        config = self._config
        shards = {
            "pp": f"{config.pp_rank}/{config.pp_size}",
            "cp": f"{config.attn_cp_rank}/{config.attn_cp_size}",
        }
        if getattr(config, "dcp_size", 1) > 1:  # with latents that are not replicated then
            shards["dcp"] = f"{config.dcp_rank}/{config.dcp_size}"
        return shards

    # Rows of values, which SGLang copies from and to its pool.

    def get(
        self,
        key: str,
        target_location: Any = None,  # noqa: ANN401
        target_sizes: Any = None,  # noqa: ANN401
    ) -> Row:
        """Returns a page; None if it is not there."""
        return self.batch_get([key], None if target_location is None else [target_location])[0]

    def batch_get(
        self,
        keys: list[str],
        target_locations: Any = None,  # noqa: ANN401
        target_sizes: Any = None,  # noqa: ANN401
    ) -> list[Row]:
        """Returns pages; None for those that are not there. Targets are filled, and returned."""
        rows = self._pools[_KV].store.load(keys)
        if target_locations is None:
            return rows
        return [
            None if row is None else target.copy_(row.view(target.shape))
            for row, target in zip(rows, target_locations, strict=True)
        ]

    def set(
        self,
        key: str,
        value: Any = None,  # noqa: ANN401
        target_location: Any = None,  # noqa: ANN401
        target_sizes: Any = None,  # noqa: ANN401
    ) -> bool:
        """Saves a page."""
        return self.batch_set([key], [target_location if value is None else value])

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,  # noqa: ANN401
        target_locations: Any = None,  # noqa: ANN401
        target_sizes: Any = None,  # noqa: ANN401
    ) -> bool:
        """Saves pages that are not there yet; returns whether all are."""
        rows = target_locations if values is None else values
        return all(self._pools[_KV].store.save(keys, rows.__getitem__))

    def exists(self, key: str) -> bool:
        """Returns whether there is an artefact, and a service to restore it."""
        return bool(self.batch_exists([key]))

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:  # noqa: ANN401
        """Returns how many pages there are, from the first one on."""
        return self._pools[_KV].store.leading(keys)

    # Pages by their places in the pool.

    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: Any = None,  # noqa: ANN401
    ) -> list[bool]:
        """Loads pages into the pool; returns which."""
        return self._pools[_KV].load(keys, host_indices)

    def batch_set_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: Any = None,  # noqa: ANN401
    ) -> list[bool]:
        """Saves pages of the pool that are not there yet; returns which are there."""
        return self._pools[_KV].save(keys, host_indices)

    # The same for all pools.

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[Any] | None = None,
        extra_info: Any = None,  # noqa: ANN401
    ) -> PoolTransferResult:
        """Returns how long a prefix can be restored, by the rules of all pools.

        Raises:
            ValueError: A pool has a rule that is not known.
        """
        most = self._pools[_KV].store.leading(keys)
        hits = {_KV: most} if most else {}
        restorable = set(range(1, most + 1))
        for transfer in pool_transfers or []:
            name = str(transfer.name)
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                lengths = set(range(1, self._pools[name].store.leading(keys[:most]) + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                needed = max(1, len(transfer.keys or ()))
                there = [self._pools[name].store.holds(key) for key in keys[:most]]
                ends = range(1, most + 1)
                lengths = {end for end in ends if all(there[max(0, end - needed) : end])}
            else:
                raise ValueError(f"the pool {name} has the rule {transfer.hit_policy}")
            if lengths:
                hits[name] = max(lengths)
            restorable &= lengths
        return PoolTransferResult(max(restorable, default=0), hits, sorted(restorable))

    def batch_get_v2(
        self,
        transfers: list[Any],
        extra_info: Any = None,  # noqa: ANN401
    ) -> dict[str, list[bool]]:
        """Loads pages into pools; returns which, by pool."""
        return self._each(transfers, _Pool.load)

    def batch_set_v2(
        self,
        transfers: list[Any],
        extra_info: Any = None,  # noqa: ANN401
    ) -> dict[str, list[bool]]:
        """Saves pages of pools that are not there yet; returns which are there, by pool."""
        return self._each(transfers, _Pool.save)

    # Others.

    def report_status(self) -> dict[str, int]:
        """Returns counters of pages and bytes, of artefacts that failed, and of the store."""
        return self._backend.counters()

    def get_stats(self) -> Any:  # noqa: ANN401
        """Returns SGLang's StorageMetrics since the last call; None where it does not want them."""
        if not self._config.enable_storage_metrics:
            return None
        from sglang.srt.observability.metrics_collector import (  # type: ignore[import-not-found,unused-ignore]
            StorageMetrics,
        )

        metrics = StorageMetrics()
        metrics.prefetch_pgs, metrics.prefetch_bandwidth = self._backend.transfers.take("load")
        metrics.backup_pgs, metrics.backup_bandwidth = self._backend.transfers.take("save")
        return metrics

    def clear(self) -> bool:
        """Removes the artefacts of this model from the folder, for all engines; returns success.

        Those that are being read stay, and so do other models.
        """
        try:
            removed = sum(pool.store.clear() for pool in self._pools.values())
        except OSError as error:
            _LOG.warning("artefacts are not removed: %s", error)
            return False
        _LOG.info("%d artefacts are removed from %s", removed, self._parameters.folder)
        return True

    def close(self) -> None:
        """Ends the threads, and the server if it is the engine's own."""
        self._backend.close()

    def _each(
        self,
        transfers: Iterable[Any],
        move: Callable[[_Pool, Sequence[str], torch.Tensor], list[bool]],
    ) -> dict[str, list[bool]]:
        """Moves the pages of each pool."""
        moved = {}
        for transfer in transfers:
            keys, places = transfer.keys or [], transfer.host_indices
            pool = self._pools[str(transfer.name)]
            if places is None or places.numel() != len(keys) * pool.host.page_size:
                _LOG.warning("%d pages of %s have other places", len(keys), transfer.name)
                moved[transfer.name] = [False] * len(keys)
            else:
                moved[transfer.name] = move(pool, keys, places)
        return moved
