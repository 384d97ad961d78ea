# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.transformers, with the library itself and a tiny model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import claimed_blocks, claimed_line, run_line, substituted

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_llama import NEW, generate, prompt  # noqa: E402
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
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    StaticCache,
)
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    QuantoQuantizedLayer,
)

import kvcompress  # noqa: E402
from kvcompress.integrations.transformers import (  # noqa: E402
    CompressedCache,
    cache_from_tensors,
    cache_tensors,
    load_cache,
    model_labels,
    save_cache,
)

CLIENT = Path(kvcompress.__file__).parents[1]


def lossless(client: kvcompress.Client, model: Any) -> CompressedCache:  # noqa: ANN401
    """A cache that is compressed often, and exactly."""
    return CompressedCache(
        client, model.config, codec="lossless", residual_length=8, block_length=16
    )


@pytest.mark.parametrize(
    ("rows", "arguments"),
    [
        (1, {}),
        (1, {"prompt_lookup_num_tokens": 4}),
        (3, {"num_beams": 3}),
        (2, {"num_beams": 2, "num_return_sequences": 2}),
    ],
    ids=["greedy", "assisted", "beams", "several"],
)
def test_generate_as_with_its_own_cache(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    rows: int,
    arguments: dict[str, Any],
) -> None:
    """With `lossless` every id is the same, whatever generate does to the cache."""
    expected = generate(model, prompt(rows), DynamicCache(config=model.config), **arguments)
    cache = lossless(client, model)
    assert torch.equal(generate(model, prompt(rows), cache, **arguments), expected)
    assert cache.get_seq_length() == 70 + NEW - 1
    assert [len(layer.blocks) > 1 for layer in cache.layers] == [True, True]
    assert all(block.report.metrics.rmse == 0 for block in cache.blocks)


def test_older_tokens_are_smaller_and_the_newest_exact(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
) -> None:
    """What int8 costs is reported, is what comes back, and does not grow with steps."""
    plain = DynamicCache(config=model.config)
    cache = CompressedCache(client, model.config, residual_length=10, block_length=5, codec="int8")
    ids = prompt(2, 200)
    with torch.no_grad():
        model(ids[:, :150], past_key_values=cache)
        before = cache_tensors(cache)
        model(ids[:, :150], past_key_values=plain)
    originals = cache_tensors(plain)
    assert cache.stored_bytes < 0.4 * sum(states.nbytes for states in originals.values())
    for name, states in originals.items():
        assert torch.equal(before[name][..., 140:, :], states[..., 140:, :])
        assert not torch.equal(before[name], states)
    [block] = cache.blocks
    assert (block.layers, block.length) == ((0, 1), 140)
    errors = [(before[name] - originals[name])[..., :140, :] for name in originals]
    rmse = float(torch.stack(errors).pow(2).mean().sqrt())
    assert block.report.metrics.rmse == pytest.approx(rmse)
    with torch.no_grad():
        for token in range(150, 200):
            model(ids[:, token : token + 1], past_key_values=cache)
    after = cache_tensors(cache)
    for name, states in before.items():
        assert torch.equal(after[name][..., :140, :], states[..., :140, :])


def test_reset_and_crop(client: kvcompress.Client, model: Any) -> None:  # noqa: ANN401
    """Down into the compressed tokens, and to nothing."""
    cache = lossless(client, model)
    with torch.no_grad():
        model(prompt(1, 90), past_key_values=cache)
        states = cache_tensors(cache)
        cache.crop(-60)
        assert cache.get_seq_length() == 30
        for name, cut in cache_tensors(cache).items():
            assert torch.equal(cut, states[name][..., :30, :])
        model(prompt(1, 90)[:, 30:], past_key_values=cache)
        again = cache_tensors(cache)
    assert all(torch.allclose(again[name], states[name], atol=1e-4) for name in states)
    cache.reset()
    assert (cache.get_seq_length(), list(cache.blocks)) == (0, [])


def test_bfloat16(client: kvcompress.Client, model: Any) -> None:  # noqa: ANN401
    """Goes in and comes back as it is."""
    ids = prompt()
    with torch.no_grad():
        plain = model.to(torch.bfloat16)(ids, use_cache=True).past_key_values
    model.to(torch.float32)
    states = cache_tensors(plain)
    assert states["layer_0_key"].dtype == torch.bfloat16
    artefact = client.compress(states, codec="lossless").artefact
    assert artefact is not None
    result = client.decompress(artefact)
    restored = result.torch_tensors()
    assert {name: each.dtype for name, each in restored.items()} == dict.fromkeys(
        states, torch.bfloat16
    )
    assert all(torch.equal(restored[name], states[name]) for name in states)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_of_any_layout(client: kvcompress.Client, dtype: str) -> None:
    """Strides, gradients, negation, no elements, no dimensions."""
    base = torch.arange(-24, 24).reshape(2, 3, 8).to(getattr(torch, dtype))
    tensors = {
        "plain": base,
        "strided": base.transpose(0, 2)[::2],
        "gradient": base.clone().requires_grad_(),
        "empty": base[:0],
        "scalar": base[0, 0, 1],
        "negated": torch._neg_view(base),
    }
    artefact = client.compress(tensors, codec="lossless").artefact
    assert artefact is not None
    restored = client.decompress(artefact).torch_tensors()
    assert list(restored) == list(tensors)
    for name, tensor in tensors.items():
        assert restored[name].dtype == tensor.dtype
        assert torch.equal(restored[name], tensor)


def test_prompt_in_another_process(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    server: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    """A prompt's cache is saved, loaded by another process, and continued alike."""
    ids = prompt(1, 100)
    expected = generate(model, ids, DynamicCache(config=model.config))
    cache = lossless(client, model)
    with torch.no_grad():
        model(ids[:, :-1], past_key_values=cache)
    path = tmp_path / "prompt.safetensors"
    report = save_cache(client, path, cache, codec="lossless", labels={"model": "tiny"})
    assert report.tensor_count == 4
    model.save_pretrained(tmp_path / "model")
    torch.save(ids, tmp_path / "ids")
    program = (
        "import sys, torch, kvcompress, transformers\n"
        "from kvcompress.integrations.transformers import load_cache\n"
        "target, folder = sys.argv[1:]\n"
        "model = transformers.AutoModelForCausalLM.from_pretrained(folder + '/model')\n"
        "path = folder + '/prompt.safetensors'\n"
        "with kvcompress.Client(target, timeout=60) as client:\n"
        "    cache = load_cache(client, path, expected_labels={'model': 'tiny'})\n"
        "ids = torch.load(folder + '/ids')\n"
        "out = model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache,\n"
        f"    max_new_tokens={NEW}, min_new_tokens={NEW}, do_sample=False, pad_token_id=0)\n"
        "print(out[0].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, server.target, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(CLIENT)},
        capture_output=True,
        timeout=120,
    )
    assert done.stdout.decode().strip() == str(expected[0].tolist()), done.stderr.decode()
    with pytest.raises(kvcompress.DataLossError):
        load_cache(client, path, expected_labels={"model": "another"})


def test_labels_of_a_model(model: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """A copy elsewhere has the same; each row of the table has others."""
    expected = model_labels(model)
    assert expected.keys() == {"model", "weights"}
    model.save_pretrained(tmp_path)
    changes: dict[str, Callable[[Any], object]] = {
        "nothing": lambda _: None,
        "trained further": lambda copy: [each.data.mul_(1.01) for each in copy.parameters()],
        "one layer": lambda copy: copy.model.layers[1].self_attn.v_proj.weight.data.add_(0.01),
        "type": lambda copy: copy.half(),
        "rotary embedding": lambda copy: setattr(copy.config, "rope_parameters", {"theta": 1.0}),
        "one more parameter": lambda copy: copy.register_buffer("lora", torch.zeros(1)),
    }
    for name, change in changes.items():
        copy = LlamaForCausalLM.from_pretrained(tmp_path)
        change(copy)
        assert (model_labels(copy) == expected) == (name == "nothing"), name
    with pytest.raises(ValueError, match="is not in memory: load the model"):
        model_labels(copy.to("meta"))


@pytest.fixture(scope="module")
def hybrid() -> Any:  # noqa: ANN401
    """A model with sliding windows and full attention, as Gemma 3 has them."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
        max_position_embeddings=256,
    )
    return Gemma3ForCausalLM(config).eval()


def empty_cache(kind: str, config: Any) -> Any:  # noqa: ANN401
    """A cache that nothing has been put into."""
    if kind == "static":
        return StaticCache(config=config, max_cache_len=100)
    return DynamicCache(config=config)


@pytest.mark.parametrize("tokens", [10, 16, 61], ids=["below", "as many as", "above the window"])
@pytest.mark.parametrize("source", ["dynamic", "static"])
def test_caches_with_windows_and_static_ones(
    client: kvcompress.Client,
    hybrid: Any,  # noqa: ANN401
    tmp_path: Path,
    source: str,
    tokens: int,
) -> None:
    """Each is saved, loaded into any other, and continued alike."""
    ids = prompt(1, 61)[:, :tokens]
    expected = generate(hybrid, ids, DynamicCache(config=hybrid.config))
    cache = empty_cache(source, hybrid.config)
    with torch.no_grad():
        hybrid(ids[:, :-1], past_key_values=cache)
    path = tmp_path / "prompt.safetensors"
    save_cache(client, path, cache, codec="lossless")
    for kind in ("dynamic", "static"):
        loaded = load_cache(client, path, cache=empty_cache(kind, hybrid.config))
        assert torch.equal(generate(hybrid, ids, loaded), expected), kind
    if source == "static":
        with pytest.raises(ValueError, match="give an empty cache"):
            load_cache(client, path)
    else:
        assert torch.equal(generate(hybrid, ids, load_cache(client, path)), expected)
    with pytest.raises(ValueError, match="cannot be restored in part"):
        load_cache(client, path, tokens=(0, 4))
    with pytest.raises(ValueError, match="is not empty"):
        load_cache(client, path, cache=loaded)


def test_static_cache_without_room(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(prompt(1, 70), past_key_values=cache)
    save_cache(client, tmp_path / "cache", cache, codec="lossless")
    with pytest.raises(ValueError, match="has room for 69 tokens"):
        load_cache(
            client,
            tmp_path / "cache",
            cache=StaticCache(config=model.config, max_cache_len=69),
        )


def test_quantized_layers_are_refused(client: kvcompress.Client, tmp_path: Path) -> None:
    """Without the library that quantizes: what counts is the class."""
    cache = DynamicCache()
    cache.layers.append(object.__new__(QuantoQuantizedLayer))
    with pytest.raises(ValueError, match="has quantized states"):
        save_cache(client, tmp_path / "cache", cache)
    with pytest.raises(ValueError, match="no layer has states"):
        save_cache(client, tmp_path / "cache", DynamicCache())
    with pytest.raises(ValueError, match="has no layers"):
        save_cache(client, tmp_path / "cache", object())


def test_decoded_blocks_change_nothing(client: kvcompress.Client, model: Any) -> None:  # noqa: ANN401
    """Whether all, some or none of them stay; and they are given back."""
    outputs, kept = [], list[int]()
    for decoded_bytes in (0, 1 << 24, None):
        most = kept[1] // 2 if decoded_bytes is None else decoded_bytes
        cache = CompressedCache(
            client,
            model.config,
            codec="int4",
            residual_length=8,
            block_length=16,
            decoded_bytes=most,
        )
        outputs.append(generate(model, prompt(), cache))
        held = cache.stored_bytes
        cache.release()
        kept.append(held - cache.stored_bytes)
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    assert kept[0] == 0
    assert 0 < kept[2] <= kept[1] // 2


def test_what_is_no_cache(client: kvcompress.Client, model: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="layer 0 has no states"):
        cache_tensors(lossless(client, model))
    with pytest.raises(ValueError, match="not those of a cache"):
        cache_from_tensors({"layer_0_key": torch.zeros(1), "layer_1_key": torch.zeros(1)})
    with pytest.raises(ValueError, match="at least"):
        CompressedCache(client, block_length=0)


def test_lines_of_the_readme(
    client: kvcompress.Client,
    model: Any,  # noqa: ANN401
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a prompt that is longer than what stays exact, and a file in the current folder."""
    monkeypatch.chdir(tmp_path)
    ids = prompt(1, 300)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "max_new_tokens": 5}
    names = {"client": client, "model": model, "inputs": inputs, "name": "tiny"}
    [block] = claimed_blocks("transformers")
    exec(block, names)
    stored, ratios = capsys.readouterr().out.split(maxsplit=1)
    assert int(stored) > 0
    assert json.loads(ratios)
    cache: Any = names["cache"]
    assert cache.get_seq_length() == 304
    assert (tmp_path / "prompt.kvc.safetensors").is_file()


@pytest.mark.timeout(300)
def test_comparison_of_the_readme(model: Any, bin_dir: Path, tmp_path: Path) -> None:  # noqa: ANN401
    """Over fewer tokens, with a tiny model in its own format: a row for every cache."""
    model.save_pretrained(tmp_path)
    words = Tokenizer(WordLevel({"?": 0, "the": 1, "of": 2}, unk_token="?"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(tmp_path)
    shorter = {
        "FOLDER": str(tmp_path),
        " --gguf FILE": "",
        "--text FILE": f"--text {Path(__file__).parents[2] / 'core' / 'FORMAT.md'}",
        "1024": "300",
        "--steps 32": "--steps 2",
    }
    line = substituted(claimed_line("compare caches"), **shorter)
    # Threads of OpenMP that wait would take the service's processors.
    binaries = str(bin_dir.resolve())
    printed = run_line(line, seconds=280, KVCOMPRESS_BIN_DIR=binaries, OMP_WAIT_POLICY="PASSIVE")
    sizes = dict(re.findall(r"(?m)^(\w.*?) +([0-9.]+) +[0-9.]+ +[0-9.]+ ", printed))
    assert float(sizes["CompressedCache int4-kivi"]) < float(sizes["DynamicCache"])
    assert float(sizes["QuantizedCache quanto 4 bits"]) < float(sizes["DynamicCache"])
