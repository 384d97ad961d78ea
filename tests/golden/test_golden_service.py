# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Golden files that a service wrote are still written bit by bit, and read."""

import json
from pathlib import Path
from typing import Any

import pytest
import xxhash

from kvcompress import Client, payload
from oracle.source import Tensor, write

FOLDER = Path(__file__).resolve().parent / "v1-service"
GOOD: dict[str, dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())


def test_every_file_is_listed() -> None:
    files = {path.name for path in FOLDER.glob("*.safetensors")}
    sources = {f"{name}.safetensors" for name in ("source", "joint", "rope", "latent")}
    assert files == {*GOOD, *sources}


# What a last stage, or klt, writes depends on libraries: only reading it is for ever.
FREE = {name for name, entry in GOOD.items() if "last_stage" in entry or entry["codec"] == "klt"}


def newest(codec: str, preset: str) -> int:
    """Which of its ways to encode a preset a codec writes today."""
    ways = [
        entry.get("encoder", 1)
        for entry in GOOD.values()
        if (entry["codec"], entry["preset"]) == (codec, preset)
    ]
    return int(max(ways))


FIXED = [
    name
    for name, entry in GOOD.items()
    if name not in FREE and entry.get("encoder", 1) == newest(entry["codec"], entry["preset"])
]


@pytest.mark.parametrize("name", FIXED)
def test_the_service_writes_it(client: Client, name: str) -> None:
    entry = GOOD[name]
    got = client.compress(
        FOLDER / entry.get("source", "source.safetensors"),
        codec={"name": entry["codec"], "preset": entry["preset"]},
        model_config=entry.get("model_config"),
    )
    assert got.artefact == (FOLDER / name).read_bytes()
    assert got.report.payload_digest == entry["payload_digest"]


@pytest.mark.parametrize("name", GOOD)
def test_the_service_reads_it(client: Client, name: str) -> None:
    got = client.decompress(FOLDER / name)
    digest = xxhash.xxh3_128_hexdigest(got.safetensors or b"")
    assert digest == GOOD[name]["restored_xxh3_128"]


@pytest.mark.parametrize("name", GOOD)
def test_payload_reads_it(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    header, arrays = payload.read_header(data), payload.read(data)
    restored = write(
        [
            Tensor(each.name, each.dtype, each.shape, arrays[each.name].tobytes())
            for each in header.tensors
        ],
        header.metadata,
    )
    assert xxhash.xxh3_128_hexdigest(restored) == GOOD[name]["restored_xxh3_128"]
