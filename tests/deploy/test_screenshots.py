# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The pictures of a server's pages: the script makes them, and they are of the pages."""

import shutil
import struct
from pathlib import Path

import pytest
from tools import REPOSITORY, Fact, output

pytestmark = pytest.mark.slow

NAMES = [
    f"{page}{variant}.png"
    for page in ("server", "statusz")
    for variant in ("", "-dark", "-phone", "-phone-dark")
]
# A page of one colour takes less.
MIN_BYTES = 4000


def size_of(picture: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def test_pages_of_a_server(tmp_path: Path, fact: Fact) -> None:
    """On a desktop and a phone, light and dark."""
    if shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    script = REPOSITORY / "tests" / "deploy" / "screenshots"
    listed = output(script, "--server", 3, tmp_path).split()
    assert sorted(Path(name).name for name in listed) == sorted(NAMES)
    pictures = {name: (tmp_path / name).read_bytes() for name in NAMES}
    for name, picture in pictures.items():
        assert size_of(picture)[0] == (500 if "phone" in name else 1280), name
        assert len(picture) > MIN_BYTES, name
    for page in ("server", "statusz"):
        assert pictures[f"{page}.png"] != pictures[f"{page}-dark.png"]
    fact(f"{len(pictures)} pictures of a server's pages in Chromium")
