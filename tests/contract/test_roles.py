# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Keys and values by names and by patterns, and bounds that bind under each."""

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from kv_compress import Run, bits, refuse, succeed
from safetensors.numpy import save_file

from kvcompress import Client, CompressionWarning, RoleCounts, Thresholds, payload
from kvcompress.errors import InvalidArgumentError
from oracle import source
from oracle.fixtures import SAMPLE

SCHEMES: dict[str, Callable[[int, str], str]] = {
    "ours": lambda layer, part: f"layer_{layer}_{part}",
    "exported": lambda layer, part: f"past_key_values.{layer}.{part}",
    "DynamicCache": lambda layer, part: f"{part}_cache.{layer}",
    "modules": lambda layer, part: f"model.layers.{layer}.self_attn.{part[0]}_cache",
    "Cache": lambda layer, part: f"layers.{layer}.{part}s",
    "static cache": lambda layer, part: f"{part}_cache_{layer}",
    "ONNX": lambda layer, part: f"present.{layer}.{part}",
    "vLLM": lambda layer, part: f"model.layers.{layer}.self_attn.attn.{part}_cache",
    "SGLang": lambda layer, part: f"{part[0]}_buffer.{layer}",
    "llama.cpp": lambda layer, part: f"cache_{part[0]}_l{layer}",
}


def by_index(layer: int, part: str) -> str:
    """As mlx-lm names a prompt's cache, which says too little: no role without patterns."""
    return f"{layer}.{int(part == 'value')}"


BY_INDEX = ("-keys", "*.0", "-values", "*.1")


def renamed(path: Path, name_of: Callable[[int, str], str]) -> Path:
    """The sample with its tensors under other names."""
    tensors = []
    for name, (dtype, shape, data) in bits(SAMPLE).items():
        _, layer, part = name.split("_")
        tensors.append(source.Tensor(name_of(int(layer), part), dtype, tuple(shape), data))
    path.write_bytes(source.write(tensors))
    return path


@pytest.mark.parametrize("scheme", [*SCHEMES, "patterns"])
def test_bounds_bind_under_every_name(run: Run, tmp_path: Path, scheme: str) -> None:
    """What is too much for int4 is refused, and auto meets it at the same cost."""
    cache = renamed(tmp_path / "cache", SCHEMES.get(scheme, by_index))
    bounds = ["-key-thresholds", "min_snr_db=60", "-value-thresholds", "min_snr_db=60"]
    if scheme == "patterns":
        done = run("-input", cache, "-output", "out", "-codec", "int4", *bounds)
        refuse(done, "the thresholds for keys match no tensor")
        bounds += BY_INDEX
    done = run("-input", cache, "-output", "out", "-codec", "int4", *bounds)
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()
    answer = succeed(run("-input", cache, "-output", "out", "-codec", "auto", *bounds))
    assert answer["quality_passed"]
    assert answer["snr_db"] is None or answer["snr_db"] > 60
    expected = succeed(run("-input", SAMPLE, "-metrics-only", "-codec", "auto", *bounds[:4]))
    assert answer["compression_ratio"] == pytest.approx(expected["compression_ratio"], rel=0.01)


def test_roles_of_every_name(run: Run, tmp_path: Path) -> None:
    """The manifest has the same roles and layers, and so the payloads are the same."""
    payloads = set()
    expected = [int(name.split("_")[1]) for name in bits(SAMPLE)]
    for scheme, name_of in {**SCHEMES, "patterns": by_index}.items():
        cache = renamed(tmp_path / scheme, name_of)
        patterns = BY_INDEX if scheme == "patterns" else ()
        flags = ("-output", "out", "-force", "-codec", "ecsq:high")
        answer = succeed(run("-input", cache, *flags, *patterns))
        assert answer["roles"] == {"keys": 30, "values": 30, "neither": 0}
        assert answer["warnings"] == []
        entries = payload.read_header((tmp_path / "out").read_bytes()).tensors
        payloads.add(tuple((entry.role, entry.digest) for entry in entries))
        # Two numbers in a name are no layer.
        layers = [entry.layer for entry in entries]
        assert layers == ([None] * 60 if patterns else expected)
    assert len(payloads) == 1


def test_the_same_patterns_everywhere(run: Run, client: Client, tmp_path: Path) -> None:
    """Python's keyword, for files, tensors and measuring, does what the flags do."""
    cache = renamed(tmp_path / "cache", by_index)
    answer = succeed(run("-input", cache, "-output", "out", "-codec", "klt", *BY_INDEX))
    options: dict[str, Any] = {"codec": "klt", "roles": {"*.0": "key", "*.1": "value"}}
    reports = [
        client.compress(cache, tmp_path / "api", **options).report,
        client.measure(cache, **options),
    ]
    assert (tmp_path / "api").read_bytes() == (tmp_path / "out").read_bytes()
    for report in reports:
        assert report.payload_digest == answer["payload_digest"]
        assert report.roles == RoleCounts(30, 30, 0)
        assert [tensor.role for tensor in report.tensors] == ["key", "value"] * 30


def test_patterns_that_are_mistakes(run: Run, client: Client, tmp_path: Path) -> None:
    """They match nothing, or contradict each other; nothing is written."""
    arguments = ("-input", SAMPLE, "-output", "out")
    done = run(*arguments, "-keys", "*_key", "-keys", "*.k")
    refuse(done, 'none of 60 tensors has a name that "\\*.k" matches')
    done = run(*arguments, "-keys", "*_key", "-values", "*")
    refuse(done, "patterns for keys and patterns for values both match the tensor.*layer_0_key")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InvalidArgumentError) as failure:
        client.measure(SAMPLE, roles={"*.k": "key"})
    assert failure.value.reason == "ROLE_PATTERN_MATCHES_NOTHING"
    assert failure.value.field == "options.key_patterns"
    with pytest.raises(InvalidArgumentError) as failure:
        client.measure(SAMPLE, roles={f"a{i}": "value" for i in range(1025)})
    assert (failure.value.reason, failure.value.limit) == ("INVALID_OPTIONS", 1024)


def test_a_codec_that_needs_roles_and_has_none(run: Run, client: Client, tmp_path: Path) -> None:
    """Warns: in the report, on standard error, and as a warning of Python."""
    cache = renamed(tmp_path / "cache", by_index)
    done = run("-input", cache, "-metrics-only", "-codec", "ecsq")
    answer = succeed(done)
    assert answer["roles"] == {"keys": 0, "values": 0, "neither": 60}
    (warning,) = answer["warnings"]
    assert (warning["code"], warning["tensor"]) == ("NO_ROLES", None)
    assert warning["message"].endswith(', such as "*.0" and "*.1" for these names')
    assert done.stderr.decode() == f"Warning: {warning['message']} [NO_ROLES]\n"
    with pytest.warns(CompressionWarning, match="^NO_ROLES: ecsq treats keys and values") as seen:
        report = client.measure(cache, codec="ecsq")
    assert seen[0].filename == __file__
    assert report.warnings[0].message == warning["message"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert client.measure(cache, codec="int4").warnings == ()
        assert client.measure(SAMPLE, codec="ecsq").warnings == ()
    # Standard error has nothing else where it has the report.
    done = run("-input", cache, "-output", "-", "-codec", "ecsq")
    assert json.loads(done.stderr)["warnings"] == [warning]


def test_measuring_and_compressing_agree(client: Client, tmp_path: Path) -> None:
    """On every verdict, whatever the bounds and the roles are."""
    cache = renamed(tmp_path / "cache", by_index)
    cases: list[dict[str, Any]] = [
        {"codec": "int4"},
        {"codec": "int4", "thresholds": Thresholds(min_snr_db=15)},
        {"codec": "int4-hadamard", "key_thresholds": Thresholds(min_snr_db=24)},
        {"codec": "ecsq", "value_thresholds": Thresholds(max_rmse=0.01)},
        {"codec": "auto", "key_thresholds": Thresholds(min_snr_db=60), "effort": "fast"},
    ]
    for options in cases:
        options["roles"] = {"*.0": "key", "*.1": "value"}
        measured = client.measure(cache, **options)
        compressed = client.compress(
            cache, tmp_path / "out", overwrite=True, require=False, **options
        ).report
        assert measured.payload_digest == compressed.payload_digest
        assert measured.verdict == compressed.verdict
        assert measured.tensors_failed == compressed.tensors_failed
        assert measured.tensors == compressed.tensors


def test_information_about_a_plain_file(run: Run, tmp_path: Path) -> None:
    """What compression would take its tensors for, before anything is compressed."""
    cache = renamed(tmp_path / "cache", by_index)
    answer = succeed(run("-info", cache))
    assert answer["format"] == "safetensors"
    assert answer["roles"] == {"keys": 0, "values": 0, "neither": 60}
    assert answer["dtypes"] == {"BF16": 60}
    answer = succeed(run("-info", cache, *BY_INDEX))
    assert answer["roles"] == {"keys": 30, "values": 30, "neither": 0}
    first = answer["tensors"][0]
    dtype, shape, data = bits(cache)[first["name"]]
    assert first == {
        **{"name": "0.0", "dtype": dtype, "shape": shape, "role": "key", "layer": None},
        **{"kept_bit_for_bit": False, "original_size_bytes": len(data), "likely_layout": None},
    }
    assert answer["original_size_bytes"] == sum(len(data) for *_, data in bits(cache).values())
    table = source.Tensor("key_cache.3", "I32", (2,), bytes(8))
    cache.write_bytes(source.write([table]))
    (tensor,) = succeed(run("-info", cache))["tensors"]
    assert (tensor["role"], tensor["layer"], tensor["kept_bit_for_bit"]) == ("key", 3, True)
    cache.write_bytes(source.write([table])[:-1])
    refuse(run("-info", cache), "the safetensors file is damaged: .* bytes instead of the")
    succeed(run("-input", SAMPLE, "-output", "artefact"))
    roles = succeed(run("-info", "artefact"))["roles"]
    assert roles == {"keys": 30, "values": 30, "neither": 0}
    refuse(run("-info", "artefact", "-keys", "*"), "the roles of an artefact are bound to it")


def test_advice_when_bounds_do_not_hold(run: Run) -> None:
    """Which codec holds them is measured, of a file; else the line says how to find out."""
    arguments = ("-metrics-only", "-codec", "int4", "-key-thresholds", "min_snr_db=60")
    done = run("-input", SAMPLE, *arguments)
    assert done.returncode == 2
    advice = done.stderr.decode()
    assert advice.startswith("Hint: int4:64 does not hold the bounds; measured on this file, ")
    auto = ("-codec", "auto", "-effort", "fast", "-key-thresholds", "min_snr_db=60", "-verbose")
    answer = succeed(run("-input", SAMPLE, "-metrics-only", *auto))
    holds = f"-codec auto -effort fast holds them at {answer['compression_ratio']:.2f}x ("
    assert holds in advice
    assert answer["tensors_failed"] == 0
    assert "lossless for 30" in advice
    done = run("-input", "-", *arguments, stdin=SAMPLE.read_bytes())
    assert done.returncode == 2
    assert b"; to see which codec holds them, measure the file with " in done.stderr
    # The default codec, which nobody asked for bounds: one line, on a terminal and elsewhere.
    done = run("-input", SAMPLE, "-metrics-only")
    assert done.returncode == 0
    words = (
        r"Hint: int4:64 misses the default thresholds in \d+ of 60 tensors; measured on this file, "
        r"-codec auto -effort fast holds them at 4\.\d\dx \(.*\)\n"
    )
    assert re.fullmatch(words, done.stderr.decode())
    done = run("-input", "-", "-metrics-only", stdin=SAMPLE.read_bytes())
    assert re.fullmatch(r"Hint: .*; to see which codec .* -codec auto .*\n", done.stderr.decode())
    assert run("-input", SAMPLE, "-metrics-only", "-codec", "int8").stderr == b""


@pytest.mark.parametrize(("layers", "measured"), [(1, 2), (4, 4)])
def test_advice_for_a_large_file_is_measured_on_a_sample(
    run: Run, tmp_path: Path, layers: int, measured: int
) -> None:
    """To measure all of it would take many times as long as `int4`."""
    values = numpy.random.default_rng(3).normal(size=(1, 4, 4096, 64)).astype(numpy.float32) ** 5
    names = [f"layer_{layer}_{role}" for layer in range(layers) for role in ("key", "value")]
    cache = tmp_path / "cache.safetensors"
    save_file(dict.fromkeys(names, values), cache)
    done = run("-input", cache, "-metrics-only")
    assert done.returncode == 0
    words = (
        rf"Hint: int4:64 misses the default thresholds in {2 * layers} of {2 * layers} tensors; "
        rf"measured on a sample of {measured} tensors, "
        r"-codec auto -effort fast holds them at about \d\.\d\dx \(.*\)\n"
    )
    assert re.fullmatch(words, done.stderr.decode())


@pytest.mark.parametrize("flag", ["-key-thresholds", "-value-thresholds"])
@pytest.mark.parametrize("action", ["-output", "-metrics-only"])
def test_bounds_that_match_nothing(run: Run, tmp_path: Path, flag: str, action: str) -> None:
    """Are an error that says what to do, and nothing is written."""
    cache = renamed(tmp_path / "cache", lambda layer, part: f"blocks.{layer}.{part}")
    what = ["-output", "out"] if action == "-output" else ["-metrics-only"]
    done = run("-input", cache, *what, "-codec", "int8", flag, "max_rmse=9")
    part = flag.split("-")[1]
    words = f"the thresholds for {part}s match no tensor: none of 60 is recognised as {part}s"
    refuse(done, f"{words}; use names such as layer_0_{part}")
    assert not (tmp_path / "out").exists()
    # Bounds for all tensors bind whatever they are called.
    succeed(run("-input", cache, *what, "-codec", "int8", "-thresholds", "max_rmse=9"))


def test_bounds_that_match_nothing_in_python(client: Client, tmp_path: Path) -> None:
    """The reason is machine-readable, and names the field."""
    cache = renamed(tmp_path / "cache", lambda layer, part: f"blocks.{layer}.{part}")
    with pytest.raises(InvalidArgumentError) as failure:
        client.compress(cache, tmp_path / "out", key_thresholds=Thresholds(max_rmse=9))
    assert failure.value.reason == "THRESHOLD_MATCHES_NOTHING"
    assert failure.value.field == "options.key_thresholds"
    assert not (tmp_path / "out").exists()
