# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The configuration file, its place among flags and variables, and variables that are mistyped."""

import os
from pathlib import Path

import pytest
from server_process import Start, run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration file that is not there yet."""
    return tmp_path / "kvcompress.yaml"


def test_a_server_runs_from_a_file(start: Start, file: Path, tmp_path: Path) -> None:
    """With lists, units and what is empty on purpose; a flag and a variable win."""
    socket = tmp_path / "kv.sock"
    file.write_text(
        f"listen: [unix:{socket}]\nmemory-budget-bytes: 32MiB\nmax-message-bytes: 65536\n"
        "max-header-bytes: 2048\n"
    )
    # ServerProcess passes --listen itself, and so overrides the file's.
    server = start(
        *("--config", str(file), "--max-message-bytes", "131072"),
        KVCOMPRESS_MAX_HEADER_BYTES="4096",
    )
    line = server.wait_log("listening on")
    assert "memory_budget_bytes 33554432" in line
    assert "max_message_bytes 131072" in line
    assert "max_header_bytes 4096" in line
    assert not socket.exists()


def test_check_config_reads_the_file(file: Path) -> None:
    """And names the line of what is wrong."""
    file.write_text("stall-seconds: 30\n")
    assert run("--check-config", "--config", str(file)).returncode == 0
    assert run("--check-config", KVCOMPRESS_CONFIG=str(file)).returncode == 0

    file.write_text("# limits\nstal-seconds: 30\n")
    for refused in (
        run("--check-config", "--config", str(file)),
        run("--config", str(file)),
        run("--check-config", KVCOMPRESS_CONFIG=str(file)),
    ):
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(
            f'kv-compressd: --config: {file}:2: "stal-seconds" is no option; '
            "did you mean stall-seconds?\n"
        )

    file.write_text("stall-seconds: 0\n")
    refused = run("--check-config", "--config", str(file))
    assert f"kv-compressd: {file}:1: stall-seconds: " in refused.stderr

    file.write_text("profile-directory: /nowhere\n")
    assert run("--check-config", "--config", str(file)).returncode == 1
    missing = run("--check-config", "--config", str(file.with_name("none.yaml")))
    assert "none.yaml: No such file or directory" in missing.stderr


def test_hostile_files_are_errors(file: Path) -> None:
    """None of them ends the process in another way."""
    for text in ("[" * 100_000, "&a [*a]", "a: &b {c: *b}", "\x00", "%YAML 9", "? a\n" * 1000):
        file.write_text(text)
        assert run("--check-config", "--config", str(file)).returncode == 1, text[:20]
    file.write_bytes(b"listen: \xff\xfe\n")
    assert run("--check-config", "--config", str(file)).returncode == 1
    file.unlink()
    os.mkfifo(file)
    assert "not a regular file" in run("--check-config", "--config", str(file)).stderr


def test_mistyped_variables_are_warned_about(start: Start) -> None:
    """At the start, and by --check-config, which accepts them."""
    wanted = 'the environment variable "KVCOMPRESS_LISEN" is no option; did you mean '
    wanted += "KVCOMPRESS_LISTEN?"
    checked = run("--check-config", KVCOMPRESS_LISEN="x")
    assert checked.returncode == 0
    assert checked.stderr == f"kv-compressd: warning: {wanted}\n"
    assert checked.stdout == "the configuration is valid\n"
    server = start(KVCOMPRESS_LISEN="x")
    assert '"level":"warning"' in server.wait_line("KVCOMPRESS_LISEN").replace(" ", "")
    assert wanted in server.messages


def test_variables_of_others_are_not_warned_about() -> None:
    """Of the clients, and what Kubernetes sets for a service of this name."""
    checked = run(
        "--check-config",
        KVCOMPRESS_SERVER="127.0.0.1:50051",
        KVCOMPRESS_SERVICE_HOST="10.0.0.1",
        KVCOMPRESS_SERVICE_PORT_GRPC="50051",
        KVCOMPRESS_PORT="tcp://10.0.0.1:50051",
        KVCOMPRESS_PORT_50051_TCP_ADDR="10.0.0.1",
    )
    assert (checked.returncode, checked.stderr) == (0, "")
