# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Options of kvcompress.store."""

import os
from pathlib import Path

import pytest

from kvcompress.store import ArtefactStore, StoreError, StoreOptions

PAGE = 4096


def test_mistakes_are_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is no folder: name another"):
        ArtefactStore(tmp_path / "file")
    with pytest.raises(StoreError, match="is not there and cannot be made"):
        ArtefactStore("/proc/nothing/store")
    for options, message in (
        ({"capacity_bytes": 0}, "has to be positive"),
        ({"capacity_fraction": 1.5}, "at most 1"),
        ({"low_watermark": 1.0, "high_watermark": 0.9}, "at most high_watermark"),
        ({"capacity_bytes": "many"}, "such as 100G"),
        ({"ttl": "1 fortnight"}, "such as 7d"),
    ):
        with pytest.raises(ValueError, match=message):
            StoreOptions.parse(options)
    with pytest.raises(TypeError, match="no option; there are capacity_bytes"):
        StoreOptions.parse({"capacity": 1})
    with pytest.raises(TypeError, match="of the wrong type"):
        StoreOptions.parse({"high_watermark": "0.9"})


def test_capacity_of_a_part_of_the_file_system(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    whole = found.f_blocks * found.f_frsize
    assert StoreOptions(capacity_fraction=0.25).capacity(tmp_path) == int(whole * 0.25)
    assert StoreOptions().capacity(tmp_path) == whole // 2
    assert StoreOptions.parse({"capacity_bytes": "2Gi"}).capacity(tmp_path) == 2 << 30
    both = StoreOptions(capacity_bytes=PAGE, capacity_fraction=1.0)
    assert both.capacity(tmp_path) == PAGE
