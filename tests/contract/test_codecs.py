# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Every codec that the server lists has what its registry cannot give it.

Whoever adds a codec learns here what else is to be written.
"""

import json

import pytest

from kvcompress import Client, payload
from oracle.fixtures import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden"


@pytest.fixture(scope="module")
def stored(client: Client) -> list[str]:
    """The codecs that artefacts name: all but `auto`, which chooses among them."""
    return [codec.name for codec in client.server_info().codecs if codec.name != "auto"]


def test_each_is_specified(stored: list[str]) -> None:
    """In a heading, or in the sentence that begins with it where several share a section."""
    text = (REPOSITORY / "core" / "FORMAT.md").read_text()
    assert [name for name in stored if f"`{name}`" not in text and f"`{name}:" not in text] == []


def test_each_is_read_without_the_library(stored: list[str]) -> None:
    """By kvcompress.payload."""
    assert [name for name in stored if name not in payload.CODECS] == []


def test_each_has_golden_artefacts(stored: list[str]) -> None:
    """Which every later release reads."""
    named = set()
    for folder in ("v1", "v1-service"):
        index = json.loads((GOLDEN / folder / "index.json").read_text())
        named |= {entry["codec"].partition(":")[0] for entry in index.values()}
    assert [name for name in stored if name not in named] == []


def test_each_is_in_the_documents(stored: list[str]) -> None:
    """With what it makes of the sample."""
    text = (REPOSITORY / "docs" / "quality.md").read_text()
    assert [name for name in stored if f"| `{name}`" not in text] == []
