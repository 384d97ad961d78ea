# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The study's texts, JSON and table, on small values."""

import bz2
import json

import pytest

from measure.report import document, markdown
from measure.scores import Measurement, WindowScore
from measure.texts import TEXTS

SETUP = {
    "model": "a model",
    "windows": 2,
    "prefix": 8,
    "continuation": 4,
    "date": "2026-01-01",
    "machine": "a machine",
    "minutes": 1.0,
    "kept": False,
    "command": "codec_study.py",
    "software": ["one 1.0"],
    "texts": ["a text"],
}


def measurement(size: int, kl: float, passed: int, snr_db: float) -> Measurement:
    score = WindowScore(4, 2.0, 2.0 + kl, kl, 1.0 - kl)
    return Measurement("a text", size, 100, 2, passed, 0.1, snr_db, score)


def study() -> str:
    rows = [
        {"name": "int4", "family": "KV Compress", "version": "kvcompress 1"},
        {"name": "lossless", "family": "KV Compress", "version": "kvcompress 1"},
        {"name": "other", "family": "peer", "version": "peer 2"},
    ]
    results = {
        "int4": [measurement(50, 0.02, 0, 20.0), measurement(50, 0.04, 1, 21.0)],
        "lossless": [measurement(125, 0.0, 2, float("inf"))] * 2,
        "other": [measurement(25, 0.01, 2, 30.0), measurement(25, 0.02, 2, 30.0)],
    }
    stages = [
        {"codec": "int4", "stage": stage, "ratio": ratio, "windows": 1}
        for stage, ratio in (("", 4.0), ("zstd", 5.0))
    ]
    return json.dumps(document(SETUP, rows, results, stages), allow_nan=False)


def test_the_document_pools_windows_and_keeps_each() -> None:
    int4, lossless, other = json.loads(study())["rows"]
    assert int4["summary"]["bits_per_value"] == 4
    assert int4["summary"]["ratio"] == 4
    assert int4["summary"]["within_thresholds"] == 0.25
    assert int4["summary"]["kl"]["value"] == pytest.approx(0.03)
    assert [each["score"]["kl"] for each in int4["windows"]] == [0.02, 0.04]
    assert lossless["windows"][0]["snr_db"] is None
    assert other["summary"]["kl_of_reference"]["value"] == pytest.approx(0.5)


def test_the_table_goes_by_size() -> None:
    page = markdown(json.loads(study()))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows[2].startswith("| other | peer 2 | 2.0000 | 8.00x | 0.015000 ± 0.005000 | 50% ")
    assert rows[3].startswith("| `int4` | kvcompress 1 | 4.0000 | 4.00x | 0.030000 ± 0.010000 ")
    assert rows[3].endswith("| 25% | 20.5 dB |")
    assert rows[4].startswith("| `lossless` | kvcompress 1 | 10.0000 | 1.60x | 0 | 0.0% | 0 | 0 |")
    assert rows[4].endswith("| exact |")
    assert "| `int4` | 4.000x | 5.000x |" in page


def test_an_article_loses_its_markup() -> None:
    prose = "Some '''long''' prose about [[a thing|things]]&nbsp;and {{cite|x}} more." * 8
    page = f"<page><text>{{{{Infobox {{{{a}}}}}}}}\n{prose}\n* a list\n</text></page>"
    (extract,) = [text.extract for text in TEXTS if text.name == "encyclopedia"]
    text = extract(bz2.compress(page.encode()))
    assert text == "Some long prose about things and  more." * 8


def test_short_strings_are_not_documentation() -> None:
    (extract,) = [text.extract for text in TEXTS if text.name == "reference"]
    long = "word " * 100
    assert extract(f"a = 'short'\nf(r'''{long}''')".encode()) == long
