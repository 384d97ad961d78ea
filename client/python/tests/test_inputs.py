# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What is refused before anything is sent, and what the error says to do."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvcompress
from kvcompress import batch
from kvcompress._model_config import rope_parameters


class DynamicCache:
    """As transformers 5 has it."""

    layers: tuple[object, ...] = ()


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (DynamicCache(), r"not DynamicCache: .*save_cache\(client, path, cache\).*cache_tensors"),
        (np.zeros(3), 'not ndarray: a name .*{"layer_0_key": tensor}'),
        ([(np.zeros(3), np.zeros(3))], 'not list: .*"layer_0_value"'),
        (3, "not int$"),
    ],
)
def test_no_cache(source: Any, hint: str) -> None:  # noqa: ANN401
    with kvcompress.Client("127.0.0.1:1") as client, pytest.raises(TypeError, match=hint):
        client.compress(source)


def test_no_tensors() -> None:
    with kvcompress.Client("127.0.0.1:1") as client:
        for method in (client.compress, client.measure):
            with pytest.raises(kvcompress.InvalidArgumentError, match="no tensors") as caught:
                method({})
            assert caught.value.reason == "NO_TENSORS"


def test_model_configuration_of_windows(tmp_path: Path) -> None:
    """Its editors write a mark of the byte order before the text."""
    path = tmp_path / "config.json"
    path.write_text('{"rope_theta": 5000, "head_dim": 64}', encoding="utf-8-sig")
    assert rope_parameters(path).embeddings[0].theta == 5000


def test_batch_explains_itself_without_its_libraries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pyarrow", "ray"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match="0"):
        batch.main(["--help"])
    assert "--min-snr-db" in capsys.readouterr().out
    assert batch.main(["a", "b"]) == 1
    assert capsys.readouterr().err.endswith("pip install 'ray[data]'\n")


def test_batch_passes_bounds_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(*arguments: object, **named: object) -> list[batch.Outcome]:
        seen.append(arguments)
        return []

    monkeypatch.setattr(batch, "run", run)
    assert batch.main(["a", "b", "--min-snr-db", "30"]) == 0
    assert seen == [("a", "b", {"min_snr_db": 30.0})]
