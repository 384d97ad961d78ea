# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Clients that were closed, and calls that were cancelled, say so."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

import kvcompress
from fake import failing, fake_server
from kvcompress import aio

NOWHERE = "127.0.0.1:1"


def refused(call: Callable[[], object]) -> None:
    """Makes a call of a closed client."""
    with pytest.raises(kvcompress.FailedPreconditionError, match="make another client") as caught:
        call()
    assert caught.value.reason == "CLOSED"


def test_closed_client_says_so(tmp_path: Path) -> None:
    """Whatever is called, at once, also where it was closed twice; nothing is left behind."""
    with kvcompress.Client(NOWHERE) as client:
        pass
    client.close()
    refused(client.server_info)
    refused(client.self_test)
    refused(lambda: client.measure(b""))
    refused(lambda: client.compress(b"", tmp_path / "out"))
    refused(lambda: client.decompress(b""))
    assert list(tmp_path.iterdir()) == []


def test_closed_client_for_asyncio_says_so(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:

        async def closed() -> aio.Client:
            async with aio.Client(NOWHERE) as client:
                pass
            await client.close()
            return client

        client = runner.run(closed())
        refused(lambda: runner.run(client.server_info()))
        refused(lambda: runner.run(client.self_test()))
        refused(lambda: runner.run(client.measure(b"")))
        refused(lambda: runner.run(client.compress(b"", tmp_path / "out")))
        refused(lambda: runner.run(client.decompress(b"")))
    assert list(tmp_path.iterdir()) == []


def test_client_that_is_closed_between_attempts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not try again on a channel that is closed."""
    with fake_server(failing(grpc.StatusCode.UNAVAILABLE, "BUSY", {})) as target:
        client = kvcompress.Client(target)
        monkeypatch.setattr(time, "sleep", lambda _: client.close())
        refused(lambda: client.compress(b"anything"))


def test_error_of_a_cancelled_call_is_not_that_of_asyncio() -> None:
    """And has no name by which one is taken for the other."""
    with (
        fake_server(failing(grpc.StatusCode.CANCELLED, "stopped", {})) as target,
        kvcompress.Client(target) as client,
        pytest.raises(kvcompress.CallCancelledError) as caught,
    ):
        client.compress(b"anything")
    assert not isinstance(caught.value, asyncio.CancelledError)
    assert not hasattr(kvcompress, "CancelledError")
