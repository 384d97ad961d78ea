# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A storage backend of SGLang's HiCache: pages as artefacts in a folder.

    python -m sglang.launch_server --model-path MODEL --page-size 64
      --enable-hierarchical-cache --hicache-mem-layout page_first
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
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from sglang.srt.mem_cache.hicache_storage import (  # type: ignore[import-not-found,unused-ignore]
    HiCacheStorage,
    PoolHitPolicy,
    PoolName,
    PoolTransferResult,
)

from kvcompress.integrations._artefact_folder import ArtefactFolder
from kvcompress.integrations._sglang_pages import HostPages
from kvcompress.integrations._sglang_parameters import Parameters
from kvcompress.integrations._sglang_store import Backend, PageStore, Row

_LOG = logging.getLogger(__name__)

_KV = "kv"


@dataclass(frozen=True)
class _Pool:
    """A host pool, and where its pages are kept."""

    host: Any
    store: PageStore

    def load(self, keys: Sequence[str], places: torch.Tensor) -> list[bool]:
        """Loads pages into the pool; tells which."""
        rows = self.store.load(keys)
        for index, row in enumerate(rows):
            if row is not None:
                self.host.set_from_flat_data_page(self._place(places, index), row)
        return [row is not None for row in rows]

    def save(self, keys: Sequence[str], places: torch.Tensor) -> list[bool]:
        """Saves pages of the pool that are not there yet; tells which there are."""

        def row(index: int) -> Any:  # noqa: ANN401
            return self.host.get_data_page(self._place(places, index), flat=True)

        return self.store.save(keys, row)

    def _place(self, places: torch.Tensor, index: int) -> int:
        """Gives the first of a page's places."""
        return int(places[index * self.host.page_size])


class KVCompressStorage(HiCacheStorage):  # type: ignore[misc,unused-ignore]
    """Keeps the pages of host pools. Thread safe.

    Pools of keys and values, or of latents, are compressed. Others, such as those of recurrent
    states or of packed types, are kept as bytes, without loss.
    """

    def __init__(self, storage_config: Any, kwargs: Mapping[str, Any] | None = None) -> None:  # noqa: ANN401
        """Takes what SGLang gives a dynamic backend.

        Args:
            storage_config: SGLang's HiCacheStorageConfig; `Parameters` in
                `_sglang_parameters.py` documents its extra_config.
            kwargs: Nothing yet.

        Raises:
            OSError: No server can be started.
            TypeError: A parameter has a name that there is not, or there is no folder.
            ValueError: A parameter has a value that it cannot have, or nothing says which model
                it is.
        """
        self._config = storage_config
        self._parameters = Parameters.parse(storage_config.extra_config or {})
        if not storage_config.model_name and not self._parameters.identity:
            raise ValueError("SGLang gives no model name: identity has to say which model it is")
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
        ranks = {
            "tp": "replicated" if replicated else f"{config.tp_rank}/{config.tp_size}",
            "pp": f"{config.pp_rank}/{config.pp_size}",
            "cp": f"{config.attn_cp_rank}/{config.attn_cp_size}",
        }
        identity = {
            **self._parameters.identity,
            "engine": "sglang",
            "model": str(config.model_name),
            "pool": name,
            "format": str(getattr(host, "storage_format_tag", None)),
            **ranks,
            **pages.identity(),
        }
        root = Path(self._parameters.folder)
        folder = ArtefactFolder(root, f"{config.model_name}-{name}", identity)
        self._pools[name] = _Pool(host, PageStore(self._backend, pages, folder))

    # Rows of values, which SGLang copies from and to its pool.

    def get(
        self,
        key: str,
        target_location: Any = None,  # noqa: ANN401
        target_sizes: Any = None,  # noqa: ANN401
    ) -> Row:
        """Gives a page; None if it is not there."""
        return self.batch_get([key], None if target_location is None else [target_location])[0]

    def batch_get(
        self,
        keys: list[str],
        target_locations: Any = None,  # noqa: ANN401
        target_sizes: Any = None,  # noqa: ANN401
    ) -> list[Row]:
        """Gives pages; None for those that are not there. Targets are filled, and given."""
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
        """Saves pages that are not there yet; tells whether all are."""
        rows = target_locations if values is None else values
        return all(self._pools[_KV].store.save(keys, rows.__getitem__))

    def exists(self, key: str) -> bool:
        """Tells whether there is an artefact, and a service to restore it."""
        return bool(self.batch_exists([key]))

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:  # noqa: ANN401
        """Tells how many pages there are, from the first one on."""
        return self._pools[_KV].store.leading(keys)

    # Pages by their places in the pool.

    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: Any = None,  # noqa: ANN401
    ) -> list[bool]:
        """Loads pages into the pool; tells which."""
        return self._pools[_KV].load(keys, host_indices)

    def batch_set_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: Any = None,  # noqa: ANN401
    ) -> list[bool]:
        """Saves pages of the pool that are not there yet; tells which there are."""
        return self._pools[_KV].save(keys, host_indices)

    # The same for all pools.

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[Any] | None = None,
        extra_info: Any = None,  # noqa: ANN401
    ) -> PoolTransferResult:
        """Tells how long a prefix can be restored, by the rules of all pools.

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
        """Loads pages into pools; tells which, by pool."""
        return self._each(transfers, _Pool.load)

    def batch_set_v2(
        self,
        transfers: list[Any],
        extra_info: Any = None,  # noqa: ANN401
    ) -> dict[str, list[bool]]:
        """Saves pages of pools that are not there yet; tells which there are, by pool."""
        return self._each(transfers, _Pool.save)

    # Others.

    def report_status(self) -> dict[str, int]:
        """Gives counters of pages saved and loaded, of bytes, and of artefacts that failed."""
        return self._backend.counters()

    def clear(self) -> None:
        """Does nothing: engines may share the folder, and whoever owns it deletes."""

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
