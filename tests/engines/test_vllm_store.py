# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The store of kvcompress.integrations.vllm within vLLM: a capacity, and events for routers.

A first engine keeps all of four documents. A second one may keep a third of that, and gets the
documents one after the other, twice.
"""

import importlib.util
import os
import socket
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from jobs import run_engine, run_job  # noqa: E402
from processes import Daemon  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from kvcompress.store import ArtefactStore  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS, TOKENS = 4, 700
CHUNKS = TOKENS // 128
RESET = {"reset": True}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Documents, as numbers of tokens."""
    tokenizer = Tokenizer.from_file(f"{os.environ['KVCOMPRESS_ENGINE_MODEL']}/tokenizer.json")
    text = tokenizer.encode((REPOSITORY / "core" / "FORMAT.md").read_text()).ids
    return [text[number * TOKENS : (number + 1) * TOKENS] for number in range(DOCUMENTS)]


@pytest.fixture(scope="module")
def unbounded(
    prompts: list[list[int]], server: Daemon, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Any], list[Any], int]:
    """What an engine says that computes all, then has all in its memory; what it keeps, in bytes.

    In bfloat16 these need not be the same, as the end of a prompt is computed alone.
    """
    folder = tmp_path_factory.mktemp("unbounded")
    extra = {"folder": str(folder), "codec": "lossless", "server": server.target, "timeout": 60}
    requests: list[Any] = [each for prompt in prompts for each in (prompt, RESET)]
    results, _ = run_engine(extra, [*requests, *(each for p in prompts for each in (p, p, RESET))])
    with ArtefactStore.visit(folder) as store:
        held = sum(entry.bytes for entry in store.entries())
    return results[:DOCUMENTS], results[DOCUMENTS + 1 :: 2], held


@pytest.mark.timeout(1000)
def test_a_third_of_the_capacity(
    prompts: list[list[int]],
    unbounded: tuple[list[Any], list[Any], int],
    server: Daemon,
    tmp_path: Path,
) -> None:
    """Hits, evictions, the tokens of an engine without, and events at vLLM's own subscribers."""
    computed, resumed, held = unbounded
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    extra = {
        "folder": str(tmp_path / "cache"),
        "codec": "lossless",
        "server": server.target,
        "timeout": 60,
        "capacity_bytes": held // 3,
    }
    order = [0, 1, 2, 3, 3, 0, 1, 1]
    requests: list[Any] = [each for number in order for each in (prompts[number], RESET)]
    done = run_job(extra, requests, events=port)
    served = [result["served"] for result in done["results"]]
    assert served[:4] == [0] * 4
    assert served[4] >= 128 * (CHUNKS - 1), "the last one stays"
    assert served[5] == 0, "the first one was evicted"
    assert served[7] >= 128 * (CHUNKS - 1)
    for number, result in zip(order, done["results"], strict=True):
        expected = resumed if result["served"] else computed
        assert result["tokens"] == expected[number]["tokens"]
    with ArtefactStore.visit(tmp_path / "cache") as store:
        assert sum(entry.bytes for entry in store.entries()) <= held // 3
        assert store.account().evictions["capacity"] >= 2

    ours = [event for event in done["events"] if event["medium"] == "STORAGE"]
    stored = [event for event in ours if event["type"] == "BlockStored"]
    removed = [event for event in ours if event["type"] == "BlockRemoved"]
    assert len({each for event in stored for each in event["hashes"]}) == DOCUMENTS * CHUNKS
    assert removed
    assert {each for event in removed for each in event["hashes"]} <= {
        each for event in stored for each in event["hashes"]
    }
    counters = {key: value for key, value in done["counters"].items() if "evictions" in key}
    assert sum(counters.values()) == store.account().evictions["capacity"]
