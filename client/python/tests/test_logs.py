# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Log lines of the integrations: whole where nobody set up logging, and once where somebody did."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src"
WARN = "logging.getLogger('kvcompress.integrations.any').warning('pages are %s', 'lost')\n"
PREPARE = "from kvcompress.integrations._logs import prepare_logs\nprepare_logs()\n"
PREPARE_SGLANGS = PREPARE.replace("prepare_logs", "prepare_sglangs_logs")
PREPARE_SGLANGS += "prepare_sglangs_logs()\n"  # once more, as a second backend does
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
NAMED = r"WARNING kvcompress\.integrations\.any: pages are lost"
WHOLE = rf"{TIME},\d{{3}} {NAMED}"
UNNAMED = r"kvcompress\.integrations\.any pages are lost"
SGLANG = "logging.basicConfig(format={format!r}, datefmt='%Y-%m-%d %H:%M:%S', force=True)\n"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", WHOLE),
        ("", PREPARE, WHOLE),
        ("logging.basicConfig(format='own %(message)s')\n", "", "own pages are lost"),
        ("", "logging.basicConfig(format='own %(message)s')\n", "own pages are lost"),
        ("logging.getLogger('kvcompress').addHandler(logging.NullHandler())\n", "", ""),
    ],
    ids=["nothing", "twice", "before", "after", "by name"],
)
def test_lines(before: str, after: str, expected: str) -> None:
    """With time, level and name; or as whoever set up logging has them."""
    printed = printed_by(before + PREPARE + after + WARN)
    assert re.fullmatch(expected, printed), printed


@pytest.mark.parametrize(
    ("set_up", "expected"),
    [
        (SGLANG.format(format="[%(asctime)s TP0] %(message)s"), rf"\[{TIME} TP0\] {NAMED}"),
        (SGLANG.format(format="[%(asctime)s] %(name)s %(message)s"), rf"\[{TIME}\] {UNNAMED}"),
        (SGLANG.format(format="own %(message)s"), "own pages are lost"),
        ("", rf"{TIME},\d{{3}} {NAMED}"),
    ],
    ids=["SGLang's", "with names", "another", "nothing"],
)
def test_lines_in_sglang(set_up: str, expected: str) -> None:
    """In SGLang's format, which has neither level nor name; other formats stay as they are."""
    printed = printed_by(set_up + PREPARE_SGLANGS + WARN)
    assert re.fullmatch(expected, printed), printed


def test_sglangs_own_lines_stay() -> None:
    set_up = SGLANG.format(format="[%(asctime)s TP0] %(message)s")
    theirs = "logging.getLogger('sglang.srt').warning('%d pages', 3)\n"
    printed = printed_by(set_up + PREPARE_SGLANGS + theirs)
    assert re.fullmatch(rf"\[{TIME} TP0\] 3 pages", printed), printed


def printed_by(program: str) -> str:
    """Returns what a program prints to standard error."""
    program = f"import logging, sys\nsys.path.insert(0, {str(SOURCES)!r})\n{program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.rstrip("\n")
