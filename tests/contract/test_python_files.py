# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""save_file and load_file of the package, and what type checkers know of results."""

import doctest
from pathlib import Path
from typing import assert_type

import numpy as np
import pytest

import kvcompress
from kvcompress import _files
from kvcompress._arrays import Array

KEYS = np.random.default_rng(0).normal(size=(1, 2, 64, 16)).astype(np.float16)
TENSORS: dict[str, Array] = {
    "layer_0_key": KEYS,
    "layer_0_value": KEYS[:, :, ::-1],
    "ids": np.arange(7),
}


def test_there_and_back(client: kvcompress.Client, tmp_path: Path) -> None:
    """Without loss, over a file that is there; what is loaded can be written to."""
    path = tmp_path / "cache.kvc.safetensors"
    path.write_text("old")
    report = kvcompress.save_file(TENSORS, path, {"a": "b"}, client=client, codec="lossless")
    assert (report.codec, report.tensor_count) == ("lossless", 3)
    loaded = kvcompress.load_file(path, client=client)
    assert_type(loaded, dict[str, Array])
    assert loaded.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert loaded[name].dtype == array.dtype
        assert np.array_equal(loaded[name], array)
        loaded[name][...] = 0
    assert client.decompress(path).metadata["a"] == "b"
    part = kvcompress.load_file(path, client=client, tensors=["*_key"], tokens=(0, 8))
    assert [array.shape for array in part.values()] == [(1, 2, 8, 16)]


def test_lossy_by_default_and_within_bounds(client: kvcompress.Client, tmp_path: Path) -> None:
    """Bounds that are given hold, or there is no file."""
    path = tmp_path / "cache"
    report = kvcompress.save_file(TENSORS, path, client=client, min_snr_db=20)
    assert report.metrics.snr_db is not None
    assert report.metrics.snr_db >= 20
    path.unlink()
    with pytest.raises(kvcompress.QualityError):
        kvcompress.save_file(TENSORS, path, client=client, codec="int4", min_snr_db=60)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_compressed(client: kvcompress.Client, tmp_path: Path) -> None:
    plain = client.compress(TENSORS, reconstruct=True, codec="lossless").reconstructed
    assert plain is not None
    (tmp_path / "plain").write_bytes(plain)
    with pytest.raises(kvcompress.FailedPreconditionError):
        kvcompress.load_file(tmp_path / "plain", client=client)


def test_with_a_server_for_the_call(
    bin_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which the example in the docstring has too."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    done = doctest.testmod(_files, optionflags=doctest.ELLIPSIS)
    assert done.failed == 0
    assert done.attempted > 5
    with pytest.raises(FileNotFoundError):
        kvcompress.load_file(tmp_path / "nothing")


def test_results_without_an_output_have_what_they_hold(
    client: kvcompress.Client, tmp_path: Path
) -> None:
    """For `mypy --strict` no check is needed; with a path, or to verify only, there is nothing."""
    result = client.compress(TENSORS, codec="lossless")
    assert_type(result, kvcompress.InMemoryCompressionResult)
    assert_type(result.artefact, bytes)
    assert repr(result).startswith("CompressionResult(")
    restored = client.decompress(result.artefact)
    assert_type(restored, kvcompress.InMemoryDecompressionResult)
    assert np.array_equal(restored.tensors["ids"], TENSORS["ids"])
    assert len(restored.safetensors) > restored.report.original_size_bytes
    written = client.compress(TENSORS, tmp_path / "artefact", codec="lossless")
    assert_type(written, kvcompress.CompressionResult)
    assert not isinstance(written, kvcompress.InMemoryCompressionResult)
    assert (written.artefact, written.path) == (None, tmp_path / "artefact")
    verified = client.decompress(tmp_path / "artefact", verify_only=True)
    assert_type(verified, kvcompress.DecompressionResult)
    assert not isinstance(verified, kvcompress.InMemoryDecompressionResult)
    assert verified.tensors is None


async def types_of_the_client_for_asyncio(client: kvcompress.aio.Client, path: Path) -> None:
    """Is read by mypy, and never run."""
    assert_type(await client.compress(TENSORS), kvcompress.InMemoryCompressionResult)
    assert_type(await client.compress(TENSORS, path), kvcompress.CompressionResult)
    assert_type(await client.decompress(path), kvcompress.InMemoryDecompressionResult)
    verified = await client.decompress(path, verify_only=True)
    assert_type(verified, kvcompress.DecompressionResult)
