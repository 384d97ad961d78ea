# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What core/FORMAT.md lists byte by byte: its symbol tables and its example."""

import re
import struct

import numpy as np
import xxhash

from kvcompress import payload
from oracle.fixtures import REPOSITORY

TEXT = (REPOSITORY / "core" / "FORMAT.md").read_text()


def test_tables_have_the_digests_that_are_stated() -> None:
    """And are those that the NumPy reader has."""
    tables = re.findall(r"with digest `([0-9a-f]{32})`:\n\n```\n((?:[0-9 ]+\n)+)```", TEXT)
    assert len(tables) == 2
    for digest, rows in tables:
        assert len(rows.splitlines()) == 28
        frequencies = [int(each) for each in rows.split()]
        packed = struct.pack(f"<{len(frequencies)}H", *frequencies)
        assert xxhash.xxh3_128_hexdigest(packed) == digest
    module = REPOSITORY / "client/python/src/kvcompress/payload/_ecsq_tables.py"
    assert [rows in module.read_text() for _, rows in tables] == [True, True]


def test_example() -> None:
    """It is an artefact, and decodes to the values that the text names."""
    dump = re.findall(r"(?m)^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?){1,16}) ", TEXT)
    artefact = bytes.fromhex("".join(dump))
    tensors = payload.read(artefact)
    assert {name: values.tolist() for name, values in tensors.items()} == {
        "layer_2_key": [3.5, -1.0, 1.5]
    }
    assert tensors["layer_2_key"].dtype == np.float16
    assert f"The artefact has {len(artefact)} bytes" in TEXT
