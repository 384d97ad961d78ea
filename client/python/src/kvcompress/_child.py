# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A server of one's own: kv-compressd as a child process on a private unix socket."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import BinaryIO, Self

from kvcompress._programs import find_program

_NAME = "kv-compressd"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0

# The shell holds the reading end of a pipe whose writing end only this process has. When
# that closes, on purpose or because the process died in whatever way, `read` returns and the
# server is stopped. (A death signal of the kernel, PR_SET_PDEATHSIG, follows the thread that
# started the child instead, and would end servers that a short-lived thread had started.)
_SUPERVISOR = """
folder=$1
shift
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{ read -r _ <&3; kill "$server"; } 2>/dev/null &
watcher=$!
exec 3<&-
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
rm -f "$folder/socket" "$folder/log"
rmdir "$folder"
exit "$status"
"""


def server_binary() -> Path:
    """Finds kv-compressd.

    Returns:
        The file in this package's folder `bin`, else in the folder that the environment variable
        KVCOMPRESS_BIN_DIR names, else on the PATH.

    Raises:
        FileNotFoundError: It is in none of these.
    """
    if (program := find_program(_NAME)) is not None:
        return program
    raise FileNotFoundError(
        f"no {_NAME} to start: give a target, or put it on the PATH, or name its folder in "
        "KVCOMPRESS_BIN_DIR"
    )


class ChildServer:
    """A running kv-compressd that only this user can reach, without metrics.

    Ends on `stop`, when the object is no longer used, and when this process dies. Flags are
    taken from the environment, as kv-compressd does, but for addresses and the log.

    Attributes:
        target: Its address, as gRPC writes it.
    """

    def __init__(self, folder: str, process: "subprocess.Popen[bytes]") -> None:
        """Takes a process that runs the supervisor, and the folder with its socket."""
        self.target = f"unix:{folder}/socket"
        self._process = process
        self._finalizer = weakref.finalize(self, _stop, process, folder)

    @classmethod
    def start(cls, profile_directory: str | os.PathLike[str] | None = None) -> Self:
        """Starts a server and waits until it accepts connections, some tens of milliseconds.

        Args:
            profile_directory: With profiles, files NAME.profile.

        Raises:
            FileNotFoundError: There is no kv-compressd.
            OSError: It cannot be started; with what it printed.
        """
        binary = server_binary()
        folder = tempfile.mkdtemp(prefix="kvcompress-")
        command = [str(binary), "--listen", f"unix:{folder}/socket", "--metrics-listen="]
        command += ["--log-level", "warn", "--shutdown-grace-seconds", "1"]
        # It is this user's, and may open what this process may.
        command += ["--shared-directory", "/"]
        if profile_directory is not None:
            command += ["--profile-directory", os.fspath(Path(profile_directory).absolute())]
        try:
            with Path(folder, "log").open("w+b") as log:
                process = subprocess.Popen(  # noqa: S603
                    ["/bin/sh", "-c", _SUPERVISOR, "kvcompress", folder, *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for this process alone
                )
                server = cls(folder, process)
                try:
                    _wait(process, f"{folder}/socket", binary, log)
                except BaseException:
                    server.stop()
                    raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return server

    def stop(self) -> None:
        """Stops the server and removes its folder; waits for it. May be called again."""
        self._finalizer()


def _wait(process: "subprocess.Popen[bytes]", path: str, binary: Path, log: BinaryIO) -> None:
    """Waits until the server accepts connections.

    Raises:
        OSError: It ended, or took too long.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not _accepts(path):
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            cause = "does not answer" if ended is None else f"ended with status {ended}"
            log.seek(0)
            said = log.read().decode(errors="replace").strip()[-2000:]
            raise OSError(f"{binary} {cause}: {said}")
        time.sleep(0.005)


def _accepts(path: str) -> bool:
    """Tells whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def _stop(process: "subprocess.Popen[bytes]", folder: str) -> None:
    """Ends the supervisor and with it the server, by force if need be."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
