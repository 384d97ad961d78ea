# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Artefacts of vLLM that were encoded again, smaller, between two engines: they are hits still."""

import importlib.util
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from jobs import run_engine  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

import kvcompress  # noqa: E402
from kvcompress.store import ArtefactStore, Demotion  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
TOKENS = 700


@pytest.mark.timeout(900)
def test_demoted_artefacts_hit(tmp_path: Path) -> None:
    """With the same tokens of the document, from a third of the bytes or less."""
    tokenizer = Tokenizer.from_file(f"{os.environ['KVCOMPRESS_ENGINE_MODEL']}/tokenizer.json")
    prompt = tokenizer.encode((REPOSITORY / "core" / "FORMAT.md").read_text()).ids[:TOKENS]
    extra = {"folder": str(tmp_path), "codec": "lossless", "timeout": 60}
    [computed], _ = run_engine(extra, [prompt])
    with kvcompress.Client() as client, ArtefactStore.visit(tmp_path) as store:
        done = store.demoter(client, Demotion("klt", 0)).run()
        assert done.artefacts > 0
        assert (done.kept, done.failed) == (0, 0), done.errors
        assert 3 * done.bytes < done.before_bytes
    [restored], counters = run_engine(extra, [prompt])
    assert restored["served"] >= TOKENS // 128 * 128
    assert not [name for name, value in counters.items() if "failures" in name and value]
    assert restored["tokens"][0] == computed["tokens"][0]
