# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Starting: health, addresses, sockets left behind, and starts that must fail."""

import fcntl
import signal
import socket
import subprocess
import time
from pathlib import Path

import grpc
import pytest
from health import SERVICE_UNKNOWN, SERVING, Watch
from server_process import BINARY, PATIENCE, SERVICE, Start, environment, run, wait_until
from streams import CompressStream


def test_serves_after_the_self_test(start: Start) -> None:
    server = start()
    assert "self-test passed: SERVING" in server.messages
    assert server.check() == SERVING
    assert server.check(SERVICE) == SERVING
    assert server.get("/healthz")[::2] == (200, "SERVING\n")


def test_unknown_service_is_not_found(start: Start) -> None:
    server = start()
    with pytest.raises(grpc.RpcError) as error:
        server.check("no.such.Service")
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_watch_of_an_unknown_service_stays_open(start: Start) -> None:
    with start().channel() as channel:
        watch = Watch(channel, "no.such.Service", timeout=2)
        assert watch.first == SERVICE_UNKNOWN
        assert watch.rest() == ([], grpc.StatusCode.DEADLINE_EXCEEDED)


def test_first_line_says_what_is_served(start: Start) -> None:
    banner = start("--max-message-bytes", "70000").messages[0]
    for part in ("kv-compressd 0.", "127.0.0.1:", "max_message_bytes 70000", "max_header_bytes"):
        assert part in banner


def test_several_addresses(start: Start, tmp_path: Path) -> None:
    path = f"unix:{tmp_path}/kv.sock"
    server = start("--listen", "127.0.0.1:0", "--listen", path)
    assert server.addresses[1] == path
    assert [server.check(address=address) for address in server.addresses] == [SERVING] * 2


def test_environment(start: Start) -> None:
    assert "max_header_bytes 4096" in start(KVCOMPRESS_MAX_HEADER_BYTES="4096").messages[0]


def test_no_metrics(start: Start) -> None:
    assert start("--metrics-listen", "").http == "nothing"


def test_stale_socket_is_replaced(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "kv.sock"
    assert start("--listen", f"unix:{path}").send_and_wait(signal.SIGKILL)[0] == -signal.SIGKILL
    assert path.is_socket()
    server = start("--listen", f"unix:{path}")
    assert server.check() == SERVING
    assert server.send_and_wait()[0] == 0
    assert not path.exists()


def test_live_socket_is_not_stolen(start: Start, tmp_path: Path) -> None:
    path = f"unix:{tmp_path}/kv.sock"
    first = start("--listen", path)
    second = run("--listen", path, "--metrics-listen", "")
    assert second.returncode == 1
    assert "another process is listening on" in second.stderr
    assert first.check() == SERVING


def test_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    result = run("--listen", f"unix:{path}", "--metrics-listen", "")
    assert result.returncode == 1
    assert "is not a socket" in result.stderr
    assert path.read_text() == "data"


@pytest.mark.parametrize("flag", ["--listen", "--metrics-listen"])
def test_port_in_use(flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = {"--listen": "127.0.0.1:0", "--metrics-listen": "", flag: address}
        result = run(*(part for pair in flags.items() for part in pair))
    assert result.returncode == 1
    assert f"{address}: Address already in use" in result.stderr


def test_failed_start_leaves_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "kv.sock"
    nowhere = f"unix:{tmp_path}/missing/kv.sock"
    result = run("--listen", f"unix:{path}", "--listen", nowhere, "--metrics-listen", "")
    assert result.returncode == 1
    assert f"cannot listen on {nowhere}: No such file or directory" in result.stderr
    assert not path.exists()


def test_help_and_version() -> None:
    help_text, version = run("--help"), run("--version")
    assert (help_text.returncode, version.returncode) == (0, 0)
    assert "--shutdown-grace-seconds" in help_text.stdout
    assert version.stdout.startswith("kv-compressd 0.")


def test_bad_flag_and_bad_variable() -> None:
    flag = run("--max-message-bytes", "8MB")
    assert flag.returncode == 1
    assert '--max-message-bytes: "8MB" is not a number of bytes' in flag.stderr
    variable = run(KVCOMPRESS_LISTEN="nowhere")
    assert variable.returncode == 1
    assert 'KVCOMPRESS_LISTEN: "nowhere" is not an address' in variable.stderr


def test_connections_age(start: Start) -> None:
    """The client is asked to open another, and a call on the old one goes on."""
    states: list[grpc.ChannelConnectivity] = []
    with start("--max-connection-age-seconds", "0.3").channel() as channel:
        channel.subscribe(states.append)
        stream = CompressStream(channel)
        deadline = time.monotonic() + PATIENCE
        while grpc.ChannelConnectivity.IDLE not in states[1:]:
            assert time.monotonic() < deadline, states
            time.sleep(0.05)
        stream.finish()
        assert stream.responses[-1].HasField("trailer")


def test_closed_standard_descriptors_are_not_taken_by_sockets(tmp_path: Path) -> None:
    """What is printed would go to a client."""
    address = f"unix:{tmp_path}/kv.sock"
    flags = ["--listen", address, "--metrics-listen", "127.0.0.1:0"]
    closing = 'exec "$@" <&- >&- 2>&-'
    with subprocess.Popen(
        ["sh", "-c", closing, "sh", BINARY, *flags], env=environment({})
    ) as process:
        try:
            wait_until(lambda: run("--probe", *flags).returncode == 0, "SERVING")
            folder = Path(f"/proc/{process.pid}/fd")
            assert [str((folder / str(number)).readlink()) for number in range(3)] == [
                "/",
                "/dev/null",
                "/dev/null",
            ]
        finally:
            process.terminate()
            assert process.wait(PATIENCE) == 0


def test_what_a_killed_server_left_in_the_shared_directory(start: Start, tmp_path: Path) -> None:
    """Goes with the next start; what is under such a name and in use stays."""
    shared = tmp_path / "shared"
    shared.mkdir()
    left, used = (shared / f".kvcompress-{digit * 16}.tmp" for digit in "ab")
    left.write_bytes(b"half")
    with used.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        start("--shared-directory", str(shared), "--listen", f"unix:{tmp_path}/kv.sock")
        assert list(shared.iterdir()) == [used]
