# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Weights of a model that change at their path, in vLLM: the caches of before are not its own."""

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from jobs import run_engine  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
TOKENS, NAME = 400, "model.safetensors"


def train(path: Path) -> None:
    """Changes the norm before the last layer's attention; the size stays as it was."""
    data = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    [name] = [each for each in header if re.search(r"\.29\.input_layernorm\.weight$", each)]
    begin, stop = header[name]["data_offsets"]
    values = data[end + begin : end + stop]
    for sign in range(1, len(values), 2):  # of BF16, lowest byte first
        values[sign] ^= 0x80
    data[end + begin : end + stop] = values
    path.write_bytes(data)


@pytest.mark.timeout(900)
def test_other_weights_at_the_same_path(tmp_path: Path) -> None:
    """Engines of the first weights hit; one of others computes, and says what it says alone."""
    model = tmp_path / "model"
    shutil.copytree(os.environ["KVCOMPRESS_ENGINE_MODEL"], model, symlinks=False)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    text = (REPOSITORY / "core" / "FORMAT.md").read_text()
    prompts = [tokenizer.encode(text).ids[:TOKENS], {"reset": True}]
    extra = {"folder": str(tmp_path / "cache"), "codec": "lossless", "timeout": 60}

    def served(extra: dict[str, object] | None) -> tuple[int, list[int]]:
        [result], _ = run_engine(extra, prompts, model=str(model))
        return result["served"], result["tokens"]

    assert served(extra)[0] == 0
    hit, before = served(extra)
    assert hit >= 256
    train(model / NAME)
    again, after = served(extra)
    assert again == 0
    assert (again, after) == served(None)
    assert after != before
    identities = [path.read_text() for path in (tmp_path / "cache").glob("*/identity.json")]
    assert len({json.loads(each)["weights"] for each in identities}) == 2
