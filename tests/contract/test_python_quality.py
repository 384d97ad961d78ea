# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The quality gate of the Python client, on the real server."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import claimed_blocks
from kv_compress import Run

import kvcompress
from kvcompress import Client, QualityError, Thresholds, aio
from oracle.fixtures import SAMPLE
from oracle.server import Server
from oracle.source import tensor, write


def test_a_bound_leaves_no_file_or_holds(client: Client, tmp_path: Path) -> None:
    """What int4 misses, `auto` holds, as the error says."""
    path = tmp_path / "out"
    with pytest.raises(QualityError, match='codec="auto"') as caught:
        client.compress(SAMPLE, path, codec="int4", min_snr_db=30)
    error = caught.value
    assert list(tmp_path.iterdir()) == []
    assert min(each.metrics.snr_db or 0 for each in error.report.tensors) < 30
    assert error.missed[0].metric == "snr_db"
    report = client.compress(SAMPLE, path, codec="auto", min_snr_db=30).report
    assert all((each.metrics.snr_db or 99) > 30 for each in report.tensors)
    before = path.read_bytes()
    bounds = Thresholds(max_rmse=1e-6)
    with pytest.raises(QualityError):
        client.compress(SAMPLE, path, overwrite=True, codec="int4", value_thresholds=bounds)
    assert path.read_bytes() == before
    same = client.compress(
        SAMPLE, path, overwrite=True, codec="int4", min_snr_db=30, require=False
    ).report
    assert same.metrics == error.report.metrics
    assert path.read_bytes() != before


def test_it_misses_what_the_command_line_misses(client: Client, run: Run) -> None:
    """Per tensor, and of the bounds that were given alone."""
    for bound, status in ((1.0, 0), (22.125, 2)):
        flags = ("-metrics-only", "-codec", "int4", "-min-snr-db", str(bound))
        assert run("-input", SAMPLE, *flags).returncode == status
        if status == 0:
            client.compress(SAMPLE, codec="int4", min_snr_db=bound)
            continue
        with pytest.raises(QualityError):
            client.compress(SAMPLE, codec="int4", min_snr_db=bound)
        report = client.measure(SAMPLE, codec="int4", min_snr_db=bound)
        assert report.tensors_failed > 0


def test_bounds_bind_as_the_server_judges(client: Client) -> None:
    """Those that were given, on every tensor, by role: its own before those for all."""
    rng = np.random.default_rng(3)
    key, value = rng.standard_normal((1, 1, 8, 64)), rng.standard_normal((8, 64))
    source = write(
        [
            tensor("layer_0_key", "F32", key, key.shape),
            tensor("layer_0_value", "F32", 4 * value, value.shape),
            tensor("exact", "F32", np.zeros(64), (64,)),
        ]
    )
    keys, values, _ = (each.metrics for each in client.measure(source, codec="int4").tensors)
    assert keys.max_error < values.max_error
    between = (keys.max_error + values.max_error) / 2
    cases: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"thresholds": {"min_snr_db": -9}, "max_error": between}, {"layer_0_value": "max_error"}),
        ({"value_thresholds": {"max_rmse": 1e-9}}, {"layer_0_value": "rmse"}),
        ({"min_snr_db": 99, "value_thresholds": {"min_snr_db": 1}}, {"layer_0_key": "snr_db"}),
        ({"min_snr_db": 1, "max_rmse": 9, "max_error": 9}, {}),
        ({"min_token_snr_db_p1": 1}, {"layer_0_value": "token_snr_db_p1"}),
        ({"key_thresholds": {"min_centred_snr_db": -299}}, {}),
    ]
    for options, missed in cases:
        options["codec"] = "int4"
        if not missed:
            client.compress(source, **options)
            continue
        with pytest.raises(QualityError) as caught:
            client.compress(source, **options)
        assert {each.tensor: each.metric for each in caught.value.missed} == missed


def test_a_server_of_its_own_publishes_nothing_either(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which would write the file itself, and before the report."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir.resolve()))
    with Client() as client, pytest.raises(QualityError):
        client.compress(SAMPLE, tmp_path / "out", codec="int4", min_snr_db=30)
    assert list(tmp_path.iterdir()) == []


def test_asyncio(server: Server, tmp_path: Path) -> None:
    async def compress() -> None:
        async with aio.Client(server.target) as client:
            await client.compress(SAMPLE, tmp_path / "out", codec="int4", min_snr_db=30)

    with pytest.raises(QualityError):
        asyncio.run(compress())
    assert list(tmp_path.iterdir()) == []


def test_example_of_the_readme(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It ends with a file, and its comment says what is printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache.safetensors").symlink_to(SAMPLE)
    [block] = claimed_blocks("quality")
    exec(block, {"client": client, "kvcompress": kvcompress})
    said = capsys.readouterr().out
    assert said.startswith("60 of 60 tensors miss a bound with int4:64; worst: ")
    assert said.split(";")[0] in block
    assert (tmp_path / "small.safetensors").is_file()
