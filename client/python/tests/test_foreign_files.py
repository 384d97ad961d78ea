# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Files in folders that others can write: what is no file is refused, and nothing waits."""

import os
import socket
from pathlib import Path

import pytest

from kvcompress._foreign_files import ForeignFileError, open_foreign, parse_json, read_foreign


def test_a_file_is_read(tmp_path: Path) -> None:
    """Up to the size that is allowed, and as it was when it was opened."""
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_foreign(path, 4) == b"1234"
    with open_foreign(str(path), 4) as file:
        assert file.read(2) == b"12"
    with pytest.raises(ForeignFileError, match="has 4 bytes, and may have 3"):
        read_foreign(path, 3)
    with pytest.raises(FileNotFoundError):
        read_foreign(tmp_path / "none", 4)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """FIFOs without a writer, links, sockets, folders, devices, and 1 TiB without content."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for name in ("fifo", "link", "loop", "socket", "sparse", "."):
            with pytest.raises(ForeignFileError):
                open_foreign(tmp_path / name, 1 << 20)
    with pytest.raises(ForeignFileError):
        open_foreign("/dev/zero", 1 << 20)


def test_file_of_another_user_where_all_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    owner = path.stat().st_uid
    tmp_path.chmod(0o1777)
    assert read_foreign(path, 1) == b""
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ForeignFileError, match=f"belongs to user {owner}"):
        read_foreign(path, 1)
    tmp_path.chmod(0o755)
    assert read_foreign(path, 1) == b""


def test_json_of_any_depth() -> None:
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    for text in (b"[" * 200_000, b'{"a":' * 200_000, "{", b"\xff"):
        with pytest.raises(ValueError):  # noqa: PT011
            parse_json(text)
