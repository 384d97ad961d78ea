# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A server of one's own: kv-compressd as a child process on a private unix socket."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings
import weakref
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from kvcompress._programs import find_program
from kvcompress._warnings import depth_of_caller

_NAME = "kv-compressd"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_NOTICE_SECONDS = 1.0
_MAX_RESTARTS = 5
# What the kernel has space for, and what gRPC takes for itself in no address.
_MAX_SOCKET_BYTES = 107
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+=@-]+")

# The shell holds one end of a pair of sockets whose other end only this process has. When a
# line comes, or that end closes because the process died in whatever way, `read` returns and the
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
    taken from the environment, as kv-compressd does, but for addresses and the log. A process
    forked from this one has no part in it. Thread safe.

    Attributes:
        target: Its address, as gRPC writes it.
    """

    def __init__(self, folder: str, command: list[str]) -> None:
        """Starts a server with its socket in a folder that is there; see `start`."""
        self.target = f"unix:{folder}/socket"
        self._folder, self._command = folder, command
        self._lock = threading.Lock()
        self._restarts = 0
        self._launch()
        _servers.add(self)

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
        folder = _make_folder()
        command = [str(binary), "--listen", f"unix:{folder}/socket", "--metrics-listen="]
        command += ["--log-level", "warn", "--shutdown-grace-seconds", "1"]
        # It is this user's, and may open what this process may.
        command += ["--shared-directory", "/"]
        if profile_directory is not None:
            command += ["--profile-directory", os.fspath(Path(profile_directory).absolute())]
        return cls(folder, command)

    def stop(self) -> None:
        """Stops the server and removes its folder; waits for it. May be called again."""
        with self._lock:
            self._finalizer()

    def ended(self) -> str | None:
        """Returns how a server ended unasked; None while it accepts connections."""
        if not self._finalizer.alive or _accepts(self._folder):
            return None
        try:
            how = _ending(self._process.wait(_NOTICE_SECONDS))
        except subprocess.TimeoutExpired:
            how = f"cannot be reached: {self._folder}/socket was removed"
        return f"{_NAME}, the server that the client started, {how}"

    def restart(self, ended: str) -> bool:
        """Starts a server that has ended again, at the same address, and warns of it.

        Args:
            ended: What `ended` said.

        Returns:
            False where it was stopped, or has ended too often.

        Raises:
            OSError: It cannot be started.
        """
        with self._lock:
            if self._finalizer.alive and _accepts(self._folder):
                return True  # as another thread had it
            if not self._finalizer.alive or self._restarts == _MAX_RESTARTS:
                return False
            self._restarts += 1
            self._finalizer()
            Path(self._folder).mkdir(0o700)
            self._launch()
        text = f"{ended}; it was started again, {self._restarts} of {_MAX_RESTARTS} times"
        warnings.warn(text, RuntimeWarning, stacklevel=depth_of_caller())
        return True

    def _launch(self) -> None:
        """Starts the process, and waits for the server.

        Raises:
            OSError: It cannot be started; the folder is removed.
        """
        try:
            self._line, far_end = socket.socketpair()
            with far_end, Path(self._folder, "log").open("w+b") as log:
                self._process = subprocess.Popen(  # noqa: S603
                    ["/bin/sh", "-c", _SUPERVISOR, "kvcompress", self._folder, *self._command],
                    stdin=far_end.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for this process alone
                )
                self._finalizer = weakref.finalize(
                    self, _stop, self._process, self._line, self._folder, os.getpid()
                )
                try:
                    _wait(self._process, self._folder, self._command[0], log)
                except BaseException:
                    self._finalizer()
                    raise
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _forget(self) -> None:
        """Leaves the server to the process that this one was forked from."""
        self._finalizer.detach()
        self._line.close()
        self._process.returncode = 0  # so that nothing waits for it, or warns that it runs


_servers: "weakref.WeakSet[ChildServer]" = weakref.WeakSet()


def _forget_servers() -> None:
    """Leaves all servers to the process that this one was forked from."""
    for server in list(_servers):
        server._forget()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_servers)


def _make_folder() -> str:
    """Makes a folder for a socket: where temporary files go, if its path fits into an address."""
    place = tempfile.gettempdir()
    longest = f"{place}/kvcompress-12345678/socket"
    fits = len(longest) <= _MAX_SOCKET_BYTES and _PLAIN_PATH.fullmatch(longest)
    return tempfile.mkdtemp(prefix="kvcompress-", dir=None if fits else "/tmp")  # noqa: S108


def _wait(process: "subprocess.Popen[bytes]", folder: str, binary: str, log: BinaryIO) -> None:
    """Waits until the server accepts connections.

    Raises:
        OSError: It ended, or took too long.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not _accepts(folder):
        status = process.poll()
        if status is not None or time.monotonic() > deadline:
            cause = "does not answer" if status is None else _ending(status)
            log.seek(0)
            said = log.read().decode(errors="replace").strip()[-2000:]
            raise OSError(f"{binary} {cause}: {said}")
        time.sleep(0.005)


def _accepts(folder: str) -> bool:
    """Returns whether somebody listens on the socket of a folder."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(f"{folder}/socket")
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except BlockingIOError:  # so many connect that others have to wait
            return True
    return True


def _ending(status: int) -> str:
    """Describes the exit status of a process, which may be that of its shell."""
    number = -status if status < 0 else status - 128
    with suppress(ValueError):
        name = signal.Signals(number).name
        return f"was ended by {name}{', as where memory runs out' if name == 'SIGKILL' else ''}"
    return f"ended with status {status}"


def _stop(process: "subprocess.Popen[bytes]", line: socket.socket, folder: str, owner: int) -> None:
    """Ends the supervisor and with it the server, by force if need be."""
    if os.getpid() != owner:
        return
    # A forked process may hold this end open too, so that closing it may not be enough. Where
    # nobody listens any more, no signal ends this process.
    with line, suppress(OSError):
        line.send(b"\n", socket.MSG_NOSIGNAL)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
