# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Adapters made as LMCache makes them, and called as LMCache calls them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch  # type: ignore[import-not-found,unused-ignore]
from lmcache.v1.distributed.l2_adapters.config import (  # type: ignore[import-not-found,unused-ignore]
    get_l2_adapter_config_class,
)
from lmcache.v1.distributed.l2_adapters.factory import (  # type: ignore[import-not-found,unused-ignore]
    create_l2_adapter_from_registry,
)
from lmcache_objects import KEY, finish, zeros_like

MakeAdapter = Callable[..., Any]


def adapter_of(**params: object) -> Any:  # noqa: ANN401
    """Makes an adapter from its parameters, of which those that are None are not given."""
    spec = {
        "type": "plugin",
        "module_path": "kvcompress.integrations.lmcache",
        "class_name": "KVCompressAdapter",
        "adapter_params": {key: value for key, value in params.items() if value is not None},
    }
    config = get_l2_adapter_config_class("plugin").from_dict(spec)
    return create_l2_adapter_from_registry(config, None)


@pytest.fixture
def make(
    server: Any,  # noqa: ANN401
    bin_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[MakeAdapter]:
    """Makes adapters as LMCache does, on one folder and one service, and closes them."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    made = []

    def make_one(**params: object) -> Any:  # noqa: ANN401
        params = {"server": server.target, "path": str(tmp_path / "cache"), **params}
        made.append(adapter_of(**params))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


def store(adapter: Any, *objects: Any, key: Any = KEY) -> bool:  # noqa: ANN401
    """Stores an object; returns whether LMCache hears of success."""
    done: dict[int, Any] = {}

    def query(task: int) -> Any:  # noqa: ANN401
        done.update(adapter.pop_completed_store_tasks())
        return done.get(task)

    task = adapter.submit_store_task([key] * len(objects), list(objects))
    return bool(finish(adapter.get_store_event_fd(), query, task).is_successful())


def found(adapter: Any, key: Any = KEY) -> bool:  # noqa: ANN401
    """Whether a lookup finds a key."""
    task = adapter.submit_lookup_and_lock_task([key], {})
    descriptor = adapter.get_lookup_and_lock_event_fd()
    return bool(finish(descriptor, adapter.query_lookup_and_lock_result, task).test(0))


def load(adapter: Any, like: Any, key: Any = KEY) -> list[Any] | None:  # noqa: ANN401
    """What is loaded into an object of zeros; None for a miss, which leaves it as it is."""
    target = zeros_like(like)
    task = adapter.submit_load_task([key], [target])
    hit = finish(adapter.get_load_event_fd(), adapter.query_load_result, task).test(0)
    tensors = [target.get_tensor(index) for index in range(len(target.get_shapes()))]
    if not hit:
        assert not any(tensor.view(torch.uint8).any() for tensor in tensors)
    return tensors if hit else None
