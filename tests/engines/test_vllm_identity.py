# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How vLLM finds our connector, and what distinguishes caches of engines, without one.

Images, salts and the names of LoRA adapters are in vLLM's own hashes of blocks.
test_vllm_adapters.py has the weights of adapters.
"""

import importlib
import importlib.util
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow

from engine import repair_scan  # noqa: E402

repair_scan()

from kvcompress.integrations._vllm_layouts import identity  # noqa: E402

PACKAGE = Path(__file__).parents[2] / "client" / "python"


class Config:
    """The configuration of a model of transformers."""

    def __init__(self, **fields: object) -> None:
        """Takes fields."""
        self._commit_hash = fields.pop("commit", None)
        self._fields = fields

    def to_dict(self) -> dict[str, object]:
        """Returns the fields, and what says nothing of the cache."""
        return {"transformers_version": "5", "_name_or_path": "here", **self._fields}


def engine(model: str, **changes: Any) -> Any:  # noqa: ANN401
    """The configuration of an engine."""
    fields = {
        "revision": None,
        "commit": None,
        "config": {"hidden_size": 8, "rope_theta": 1e4},
        "quantization": None,
        "dtype": "torch.bfloat16",
        "cache_dtype": "auto",
        "hash": "sha256",
        "identity": {},
        **changes,
    }
    extra = {"folder": "/cache", "identity": fields["identity"]}
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model=model,
            model_weights="",
            revision=fields["revision"],
            hf_config=Config(**fields["config"], commit=fields["commit"]),
            quantization=fields["quantization"],
            dtype=fields["dtype"],
        ),
        cache_config=SimpleNamespace(
            cache_dtype=fields["cache_dtype"], prefix_caching_hash_algo=fields["hash"]
        ),
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra),
    )


def test_pairs_that_must_not_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row differs from the first engine in one thing; the first one itself is the same."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    path, weights = str(tmp_path / "model"), tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(bytes(100_000))
    first = identity(engine(path))
    assert identity(engine(path)) == first
    others: dict[str, Any] = {
        "revision": engine(path, revision="v2"),
        "configuration": engine(path, config={"hidden_size": 8, "rope_theta": 1e6}),
        "quantization": engine(path, quantization="fp8"),
        "type": engine(path, dtype="torch.float16"),
        "type of the cache": engine(path, cache_dtype="fp8"),
        "hashes of blocks": engine(path, hash="sha256_cbor"),
        "version of the weights": engine(path, identity={"weights": "2"}),
        "model": engine("org/model", commit="0" * 40),
    }
    found = [identity(each) for each in others.values()]
    for name, each in zip(others, found, strict=True):
        assert each != first, name
    assert len({tuple(sorted(each.items())) for each in found}) == len(found)
    weights.write_bytes(bytes(99_999) + b"\x01")
    assert identity(engine(path)) != first, "weights"


def test_commits() -> None:
    """What the engine has loaded counts, and not the name that it was asked for."""
    loaded = [engine("org/model", commit=digit * 40) for digit in "01"]
    assert identity(loaded[0]) != identity(loaded[1])
    named = identity(engine("org/model", commit="0" * 40, revision="main"))
    assert named["weights"] == identity(loaded[0])["weights"]


def test_entry_point() -> None:
    """With the package installed the name is enough; vLLM may load a plugin more than once."""
    from vllm.config import KVTransferConfig  # type: ignore[import-not-found,unused-ignore]
    from vllm.distributed.kv_transfer.kv_connector.factory import (  # type: ignore[import-not-found,unused-ignore]
        KVConnectorFactory,
    )
    from vllm.plugins import (  # type: ignore[import-not-found,unused-ignore]
        DEFAULT_PLUGINS_GROUP,
    )

    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    [value] = project["entry-points"][DEFAULT_PLUGINS_GROUP].values()
    module, _, name = value.partition(":")
    for _ in range(2):
        getattr(importlib.import_module(module), name)()
    short = KVTransferConfig(kv_connector="KVCompressConnector", kv_role="kv_both")
    found = KVConnectorFactory.get_connector_class(short)
    assert (found.__module__, found.__name__) == (
        "kvcompress.integrations.vllm",
        "KVCompressConnector",
    )


def test_identity_that_is_no_object() -> None:
    with pytest.raises(ValueError, match="has to be an object of names and values"):
        identity(engine("org/model", identity="2"))
