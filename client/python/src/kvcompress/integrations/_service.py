# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A service that may be away: calls that are not worth it are not made."""

import threading
import time

from kvcompress._client import Client
from kvcompress.integrations._exchange import Exchange

_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds without a call after one that found no service


class Service:
    """A client, and whether it is worth a call. Thread safe.

    While the service does not answer, nobody waits for it: for a second, and after each further
    failure for twice as long, there is no client.
    """

    def __init__(self, server: str | None, profile_directory: str | None = None) -> None:
        """Takes the address; None for a server of its own, with the profiles of a folder."""
        self._server, self._profile_directory = server, profile_directory
        self._lock = threading.Lock()
        self._connection: tuple[Client, Exchange] | None = None
        self._opened = False
        self._pause, self._until = _PAUSE, 0.0

    @property
    def paused(self) -> bool:
        """Whether calls are not worth it now."""
        return time.monotonic() < self._until

    def client(self) -> Client:
        """Gives the client.

        Raises:
            OSError: The service did not answer lately, or none can be started.
        """
        with self._lock:
            return self._connected()[0]

    def exchange(self) -> Exchange:
        """Gives what restores, with the client.

        Raises:
            OSError: As `client`.
        """
        with self._lock:
            return self._connected()[1]

    def _connected(self) -> tuple[Client, Exchange]:
        """Gives both, under the lock."""
        if self.paused:
            raise ConnectionError("the service did not answer lately")
        if self._connection is None:
            profiles = self._profile_directory
            client = Client(self._server, attempts=1, profile_directory=profiles)
            self._connection, self._opened = (client, Exchange(client)), False
        return self._connection

    def succeeded(self) -> None:
        """Notes an answer. After the first, the exchange may ask for more."""
        self._pause = _PAUSE
        with self._lock:
            connection = None if self._opened else self._connection
            self._opened = True
        if connection is not None:
            connection[1].open()

    def failed(self) -> None:
        """Notes a call without an answer. The next one has a new connection."""
        with self._lock:
            if self.paused:
                return
            self._until = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self.close()

    def close(self) -> None:
        """Closes the client; calls in progress are cancelled."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection[0].close()
