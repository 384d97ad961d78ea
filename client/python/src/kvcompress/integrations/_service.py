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

    def __init__(
        self, server: str | None, profile_directory: str | None = None, *, threads: int
    ) -> None:
        """Takes the address; None for a server of its own, with the profiles of a folder.

        So many `threads` restore at once. The exchange keeps memory for as many artefacts and one
        more; see Exchange.
        """
        self._server, self._profile_directory = server, profile_directory
        self._spares = threads + 1
        self._lock = threading.Lock()
        self._exchange: Exchange | None = None
        self._pause, self._until = _PAUSE, 0.0

    @property
    def paused(self) -> bool:
        """Whether calls are not worth it now."""
        return time.monotonic() < self._until

    def client(self) -> Client:
        """Returns the client.

        Raises:
            OSError: The service did not answer lately, or none can be started.
        """
        return self.exchange().client

    def exchange(self) -> Exchange:
        """Returns the object that restores, with the client.

        Raises:
            OSError: As `client`.
        """
        with self._lock:
            if self.paused:
                raise ConnectionError("the service did not answer lately")
            if self._exchange is None:
                profiles = self._profile_directory
                client = Client(self._server, attempts=1, profile_directory=profiles)
                self._exchange = Exchange(client, spares=self._spares)
            return self._exchange

    def succeeded(self) -> None:
        """Notes an answer."""
        self._pause = _PAUSE

    def failed(self) -> None:
        """Notes a call without an answer. The next one has a new connection.

        The old one, and a server of its own, end with the last call that uses them: to close a
        channel of gRPC in which other threads have calls may never return.
        """
        with self._lock:
            if self.paused:
                return
            self._until = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            dropped, self._exchange = self._exchange, None
        del dropped  # without the lock, for a server may take a moment to end

    def close(self) -> None:
        """Closes the client. No call may be in progress."""
        with self._lock:
            exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client.close()
