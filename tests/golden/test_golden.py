# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Golden files are written bit by bit, and read, by the service and by kvcompress.payload."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from kvcompress import Client, KVCompressError, load_arrays, payload
from kvcompress.options import CompressArguments
from oracle import encoder
from oracle.source import Tensor, write

HERE = Path(__file__).resolve().parent
GOOD: dict[str, dict[str, Any]] = json.loads((HERE / "v1" / "index.json").read_text())
BAD: dict[str, dict[str, Any]] = json.loads((HERE / "errors" / "index.json").read_text())


def contents() -> dict[Path, bytes]:
    """Reads every golden file."""
    folders = [HERE / name for name in ("sources", "v1", "errors")]
    return {path: path.read_bytes() for folder in folders for path in folder.iterdir()}


def test_every_file_is_listed() -> None:
    assert {path.name for path in (HERE / "v1").glob("*.safetensors")} == set(GOOD)
    assert {path.name for path in (HERE / "errors").glob("*.safetensors")} == set(BAD)
    sources = {entry["source"] for entry in GOOD.values()}
    assert {path.name for path in (HERE / "sources").glob("*.safetensors")} == sources


def test_adding_changes_nothing() -> None:
    before = contents()
    subprocess.run([sys.executable, str(HERE / "add")], check=True)
    assert contents() == before


@pytest.mark.parametrize("name", GOOD)
def test_the_oracle_writes_it(name: str) -> None:
    entry = GOOD[name]
    source = (HERE / "sources" / entry["source"]).read_bytes()
    artefact = encoder.encode(source, entry["group_size"], entry["labels"], codec=entry["codec"])
    assert artefact.data == (HERE / "v1" / name).read_bytes()
    assert artefact.checksum == entry["payload_digest"]


@pytest.mark.parametrize("name", GOOD)
def test_the_service_writes_it(client: Client, name: str) -> None:
    entry = GOOD[name]
    got = client.compress(
        HERE / "sources" / entry["source"],
        codec={"name": entry["codec"], "group_size": entry["group_size"]},
        labels=entry["labels"],
    )
    assert got.artefact == (HERE / "v1" / name).read_bytes()
    assert got.report.payload_digest == entry["payload_digest"]


@pytest.mark.parametrize("name", GOOD)
def test_the_service_reads_it(client: Client, name: str) -> None:
    entry = GOOD[name]
    got = client.decompress(HERE / "v1" / name, expected_labels=entry["labels"])
    assert xxhash.xxh3_128_hexdigest(got.safetensors or b"") == entry["restored_xxh3_128"]
    assert got.report.payload_digest == entry["payload_digest"]
    assert got.report.labels == entry["labels"]


@pytest.mark.parametrize("name", GOOD)
def test_payload_reads_it(name: str) -> None:
    entry = GOOD[name]
    data = (HERE / "v1" / name).read_bytes()
    header, arrays = payload.read_header(data), payload.read(data)
    whole = {each.view[0].name if each.view else each.name: each for each in header.tensors}
    restored = write(
        [
            Tensor(name, each.dtype, arrays[name].shape, arrays[name].tobytes())
            for name, each in whole.items()
        ],
        header.metadata,
    )
    assert xxhash.xxh3_128_hexdigest(restored) == entry["restored_xxh3_128"]
    assert header.checksum == entry["payload_digest"]
    assert header.labels == entry["labels"]
    source, metadata = load_arrays((HERE / "sources" / entry["source"]).read_bytes())
    assert list(header.metadata.items()) == list(metadata.items())
    assert list(source) == list(arrays)
    for each, array, original in zip(whole.values(), arrays.values(), source.values(), strict=True):
        assert (array.dtype, array.shape) == (original.dtype, original.shape)
        if each.codec == "lossless":
            assert array.tobytes() == original.tobytes()
        else:
            assert np.isfinite(array.astype(np.float32)).all()


@pytest.mark.parametrize("name", BAD)
def test_the_service_refuses_it(client: Client, name: str) -> None:
    entry = BAD[name]
    path = HERE / "errors" / name
    options: CompressArguments = {"codec": "int4"} if entry["call"] == "compress" else {}
    with pytest.raises(KVCompressError) as caught:
        getattr(client, entry["call"])(path, **options)
    error = caught.value
    assert (error.code, error.reason, error.tensor or "") == (
        entry["code"],
        entry["reason"],
        entry["tensor"],
    )


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name]["call"] == "decompress"])
def test_payload_refuses_it(name: str) -> None:
    with pytest.raises(payload.PayloadError) as caught:
        payload.read(HERE / "errors" / name)
    assert caught.value.code == BAD[name]["code"]
