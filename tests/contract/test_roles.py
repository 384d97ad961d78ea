# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Keys and values by the names that engines give them, and bounds that bind under each."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kv_compress import Run, bits, refuse, succeed

from kvcompress import Client, Thresholds, payload
from kvcompress.errors import InvalidArgumentError
from oracle import source
from oracle.fixtures import SAMPLE

SCHEMES: dict[str, Callable[[int, str], str]] = {
    "ours": lambda layer, part: f"layer_{layer}_{part}",
    "exported": lambda layer, part: f"past_key_values.{layer}.{part}",
    "DynamicCache": lambda layer, part: f"{part}_cache.{layer}",
    "modules": lambda layer, part: f"model.layers.{layer}.self_attn.{part[0]}_cache",
    "llama.cpp": lambda layer, part: f"cache_{part[0]}_l{layer}",
}


def renamed(path: Path, name_of: Callable[[int, str], str]) -> Path:
    """The sample with its tensors under other names."""
    tensors = []
    for name, (dtype, shape, data) in bits(SAMPLE).items():
        _, layer, part = name.split("_")
        tensors.append(source.Tensor(name_of(int(layer), part), dtype, tuple(shape), data))
    path.write_bytes(source.write(tensors))
    return path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bounds_bind_under_every_name(run: Run, tmp_path: Path, scheme: str) -> None:
    """What is too much for int4 is refused, and auto meets it at the same cost."""
    cache = renamed(tmp_path / "cache", SCHEMES[scheme])
    bounds = ("-key-thresholds", "min_snr_db=60", "-value-thresholds", "min_snr_db=60")
    done = run("-input", cache, "-output", "out", "-codec", "int4", *bounds)
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()
    answer = succeed(run("-input", cache, "-output", "out", "-codec", "auto", *bounds))
    assert answer["quality_passed"]
    assert answer["snr_db"] is None or answer["snr_db"] > 60
    expected = succeed(run("-input", SAMPLE, "-metrics-only", "-codec", "auto", *bounds))
    assert answer["compression_ratio"] == pytest.approx(expected["compression_ratio"], rel=0.01)


def test_roles_of_every_name(run: Run, tmp_path: Path) -> None:
    """The manifest has the same roles and layers, and so the payloads are the same."""
    payloads = set()
    for scheme, name_of in SCHEMES.items():
        cache = renamed(tmp_path / scheme, name_of)
        succeed(run("-input", cache, "-output", "out", "-codec", "ecsq:high"))
        entries = payload.read_header((tmp_path / "out").read_bytes()).tensors
        payloads.add(tuple((entry.role, entry.digest) for entry in entries))
    assert len(payloads) == 1


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
