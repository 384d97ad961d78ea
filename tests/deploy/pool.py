# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Servers on hosts of their own, behind a name that resolves to the address of each.

A host is a network namespace, joined to this one by a bridge; where namespaces cannot be
made, it is an address of loopback. The name is served by a DNS server that answers as that of
Kubernetes does for a headless service: the addresses of those that are ready.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from ipaddress import IPv4Address
from pathlib import Path

from server_process import BINARY, environment, run

PATIENCE = 60
PORT, METRICS_PORT = 50051, 9464
NAME = "kvcompress.test"


def ip(*arguments: str) -> bool:
    """Runs ip, as root; whether it succeeded."""
    program = shutil.which("ip")
    if program is None:
        return False
    done = subprocess.run([program, *arguments], capture_output=True, check=False)
    return done.returncode == 0


class Network:
    """Hosts, numbered from 1."""

    def __init__(self) -> None:
        """Makes the bridge, or finds that this cannot be done."""
        self._tag = f"kvc{os.getpid() % 100_000}"
        self._hosts: list[int] = []
        subnet = os.getpid() % 250
        self._prefix = f"10.213.{subnet}."
        self.has_namespaces = (
            ip("link", "add", self._tag, "type", "bridge")
            and ip("address", "add", f"{self._prefix}254/24", "dev", self._tag)
            and ip("link", "set", self._tag, "up")
            and self._add(250)
        )
        if not self.has_namespaces:
            self.close()
            self._prefix = f"127.213.{subnet}."

    def _add(self, host: int) -> bool:
        """Makes a host in a namespace."""
        namespace, outer, inner = f"{self._tag}-{host}", f"{self._tag}o{host}", f"kvc{host}"
        self._hosts.append(host)
        within = ("netns", "exec", namespace, shutil.which("ip") or "ip")
        return (
            ip("netns", "add", namespace)
            and ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            and ip("link", "set", inner, "netns", namespace)
            and ip("link", "set", outer, "master", self._tag, "up")
            and ip(*within, "address", "add", f"{self._prefix}{host}/24", "dev", inner)
            and ip(*within, "link", "set", inner, "up")
            and ip(*within, "link", "set", "lo", "up")
        )

    def host(self, host: int) -> tuple[str, list[str]]:
        """The address of a new host, and what to put before a command that runs on it."""
        if not self.has_namespaces:
            return f"{self._prefix}{host}", []
        assert self._add(host)
        prefix = [shutil.which("ip") or "ip", "netns", "exec", f"{self._tag}-{host}"]
        return f"{self._prefix}{host}", prefix

    def close(self) -> None:
        """Removes everything."""
        for host in self._hosts:
            ip("netns", "del", f"{self._tag}-{host}")
            ip("link", "del", f"{self._tag}o{host}")
        ip("link", "del", self._tag)


class Server:
    """A server on a host of its own."""

    def __init__(self, network: Network, host: int, folder: Path, *flags: str) -> None:
        """Starts it, and waits until its own probe says SERVING."""
        self.address, prefix = network.host(host)
        listen = ["--listen", f"{self.address}:{PORT}", "--insecure"]
        metrics = ["--metrics-listen", f"{self.address}:{METRICS_PORT}"]
        with (folder / f"server-{host}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*prefix, BINARY, *listen, *metrics, *flags],
                env=environment({}),
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while run("--probe", *listen).returncode != 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def calls(self) -> int:
        """How many calls of Compress have come here."""
        url = f"http://{self.address}:{METRICS_PORT}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
            page = reply.read().decode()
        found = re.search(r'^kvcompress_requests_total\{method="Compress"\} (\d+)', page, re.M)
        assert found
        return int(found[1])

    def stop(self, number: signal.Signals) -> None:
        """Sends a signal and waits for the end."""
        self._process.send_signal(number)
        self._process.wait(PATIENCE)


class HeadlessService:
    """A DNS server for one name, whose addresses may change at any time."""

    def __init__(self) -> None:
        """Listens on a free port of loopback."""
        self.addresses: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.target = f"dns://127.0.0.1:{self._socket.getsockname()[1]}/{NAME}:{PORT}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                query, client = self._socket.recvfrom(512)
            except OSError:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        """Addresses for questions of type A about the name; for others, that there are none."""
        end = query.index(b"\0", 12) + 5  # the name, its type and its class
        question = query[12:end]
        wire_name = b"".join(bytes([len(x)]) + x.encode() for x in NAME.split(".")) + b"\0"
        ours = question.lower() == wire_name + b"\0\1\0\1"
        found = list(self.addresses) if ours else []
        header = query[:2] + b"\x85\x80\0\1" + len(found).to_bytes(2, "big") + bytes(4)
        # A pointer to the name in the question, type A, class IN, 1 second, 4 bytes.
        record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4"
        return header + question + b"".join(record + IPv4Address(a).packed for a in found)

    def close(self) -> None:
        """Stops answering."""
        self._socket.close()
