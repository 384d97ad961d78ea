# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the other tests learn from a server that does not write what it should."""

from pathlib import Path

import pytest
import server_process
from server_process import ServerProcess

STRANGE = [b"==1==ERROR: AddressSanitizer", b'{"level":"info"}', b"[1]", b"\xff", b""]


def test_lines_that_are_not_of_the_log_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those after them are read, so that the cause of a failure is shown."""
    (tmp_path / "log").write_bytes(b"\n".join([*STRANGE, b'{"message":"the last"}', b""]))
    program = tmp_path / "kv-compressd"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/log >&2\n")
    program.chmod(0o700)
    monkeypatch.setattr(server_process, "BINARY", program)
    server = ServerProcess([], {}, tmp_path)
    assert server.wait() == 0
    assert server.wait_log("the last") == "the last"
    assert server.messages == [
        *(line.decode(errors="backslashreplace") for line in STRANGE),
        "the last",
    ]
    with pytest.raises(AssertionError, match="AddressSanitizer"):
        server.wait_log("SERVING")
