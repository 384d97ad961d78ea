# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A line that loses, delays, doubles, reorders and damages the packets of IP.

A TUN device hands this process every packet for NEAR's neighbour FAR, and it hands each back
with the two addresses in each other's place: so what a client sends to FAR arrives at a server
on NEAR as if it came from FAR, through the whole of the kernel's TCP. A checksum is a sum, and
stays right. Nothing of the kernel is needed but TUN; netem, which does the same, is not in every
kernel.
"""

import contextlib
import fcntl
import heapq
import os
import random
import socket
import struct
import threading
import time
from dataclasses import dataclass

# Of 198.18.0.0/15, which is for measurements and routed nowhere.
_TUNSETIFF, _SIOCSIFADDR, _SIOCSIFDSTADDR, _SIOCSIFFLAGS = 0x400454CA, 0x8916, 0x8918, 0x8914
_IFF_TUN, _IFF_NO_PI, _IFF_UP_RUNNING = 0x0001, 0x1000, 0x41
_TCP = 6


@dataclass
class Weather:
    """What happens to packets, in both directions: parts of 1, and seconds.

    Attributes:
        lost: Packets that are not passed on.
        doubled: Packets that are passed on twice.
        damaged: Packets of which a bit is flipped; TCP's checksum finds that.
        forged: Packets in which two words of the payload change places; TCP's checksum is a sum
            of words and does not find that.
        delay: Seconds that each packet takes.
        jitter: Most seconds that a packet takes beyond that, drawn for each: what is faster
            overtakes.
    """

    lost: float = 0
    doubled: float = 0
    damaged: float = 0
    forged: float = 0
    delay: float = 0
    jitter: float = 0


class Line:
    """Two addresses, NEAR and FAR, with a bad line between them. To be used in a `with`.

    Attributes:
        near: Where servers listen.
        far: Where clients find them.
        weather: What happens to the packets to come.
        counts: Packets by what happened to them, `passed` among it.
    """

    def __init__(self, seed: int = 1) -> None:
        """Makes the device. OSError, when this machine or its rules do not let us."""
        self.weather = Weather()
        self.counts = dict.fromkeys(("passed", "lost", "doubled", "damaged", "forged"), 0)
        self._draw = random.Random(seed)  # noqa: S311
        subnet = f"198.{18 + os.getpid() // 256 % 2}.{os.getpid() % 256}"
        self.near, self.far = f"{subnet}.1", f"{subnet}.2"
        self._device = os.open("/dev/net/tun", os.O_RDWR)
        try:
            request = struct.pack("16sH22x", b"kvline%d", _IFF_TUN | _IFF_NO_PI)
            self._name = fcntl.ioctl(self._device, _TUNSETIFF, request)[:16]
            self._configure()
        except OSError:
            os.close(self._device)
            raise
        self._due: list[tuple[float, int, bytes]] = []
        self._number = 0
        self._changed = threading.Condition()
        self._ended = False
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._take, self._give)
        ]

    def _configure(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for code, address in ((_SIOCSIFADDR, self.near), (_SIOCSIFDSTADDR, self.far)):
                where = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
                fcntl.ioctl(control, code, self._name + where + bytes(8))
            fcntl.ioctl(control, _SIOCSIFFLAGS, self._name + struct.pack("=H22x", _IFF_UP_RUNNING))

    def __enter__(self) -> "Line":
        """Begins to pass packets on."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The device goes away with the process's hold on it."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as last:
            last.sendto(b"", (self.far, 9))  # so that the reader wakes up
        for thread in self._threads:
            thread.join()
        os.close(self._device)

    def _take(self) -> None:
        while not self._ended:
            packet = bytearray(os.read(self._device, 1 << 16))
            if packet[0] >> 4 != 4 or packet[9] != _TCP:
                continue
            packet[12:16], packet[16:20] = packet[16:20], packet[12:16]
            self._pass_on(packet)

    def _happens(self, what: str) -> bool:
        happens: bool = self._draw.random() < getattr(self.weather, what)
        self.counts[what] += happens
        return happens

    def _pass_on(self, packet: bytearray) -> None:
        self.counts["passed"] += 1
        if self._happens("lost"):
            return
        begin = 20 + (packet[32] >> 4) * 4  # of the payload: after the headers of IP and TCP
        if len(packet) > begin + 64:
            if self._happens("damaged"):
                at = self._draw.randrange(begin, len(packet))
                packet[at] ^= 1 << self._draw.randrange(8)
            if self._happens("forged"):
                first, second = (
                    begin + 2 * self._draw.randrange((len(packet) - begin) // 2) for _ in range(2)
                )
                words = packet[first : first + 2], packet[second : second + 2]
                packet[second : second + 2], packet[first : first + 2] = words
        for _ in range(1 + self._happens("doubled")):
            when = time.monotonic() + self.weather.delay + self._draw.random() * self.weather.jitter
            with self._changed:
                self._number += 1
                heapq.heappush(self._due, (when, self._number, bytes(packet)))
                self._changed.notify()

    def _give(self) -> None:
        while True:
            with self._changed:
                if self._ended:
                    return
                now = time.monotonic()
                if not self._due or self._due[0][0] > now:
                    self._changed.wait(self._due[0][0] - now if self._due else None)
                    continue
                packet = heapq.heappop(self._due)[2]
            with contextlib.suppress(OSError):
                os.write(self._device, packet)
