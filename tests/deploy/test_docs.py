# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The reference of the C++ libraries and of the Python package."""

import html
import re
import shutil
from pathlib import Path

import pytest
from documents import REPOSITORY, claimed_line, run_line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder() -> Path:
    """What deploy/docs writes."""
    if shutil.which("doxygen") is None and shutil.which("apt-get") is None:
        pytest.skip("no doxygen, and no apt-get to install it with")
    output = run_line(claimed_line("docs"), seconds=600)
    indices = [REPOSITORY / line for line in output.splitlines()]
    assert [index.is_file() for index in indices] == [True, True]
    return indices[0].parents[1]


def words(page: Path) -> str:
    """The text of a page."""
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]+>", " ", page.read_text())))


def test_every_public_header_has_a_page(folder: Path) -> None:
    """That begins with what its first comment says."""
    headers = [*(REPOSITORY / "core/include").rglob("*.h")]
    headers += (REPOSITORY / "client/cpp/include").rglob("*.h")
    assert len(headers) > 10
    for header in headers:
        page = folder / "cpp" / f"{header.stem.replace('_', '__')}_8h.html"
        lines = header.read_text().partition("\n\n")[2].partition("\n#ifndef")[0].splitlines()
        first = " ".join(line.removeprefix("//").strip() for line in lines[:1])
        assert first[:30] in words(page), header


def test_python(folder: Path) -> None:
    """What the README of the package sends people to."""
    for module, name in (
        ("kvcompress", "Client"),
        ("kvcompress/aio", "Client"),
        ("kvcompress/options", "CompressArguments"),
        ("kvcompress/connection", "ConnectionArguments"),
        ("kvcompress/payload", "read"),
    ):
        assert re.search(rf"\b{name}\b", words(folder / "python" / f"{module}.html")), module
