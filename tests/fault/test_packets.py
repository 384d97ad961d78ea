# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Packets that are lost, late, doubled, out of order or damaged: the same result, or an error."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from authority import Authority
from command_line import CommandLine
from line import Line, Weather
from server_process import PATIENCE, ServerProcess, Start
from test_connections import wait_until_idle

import kvcompress

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
ROUNDS = 3

WEATHER = {
    "1% lost": Weather(lost=0.01),
    "5% lost": Weather(lost=0.05),
    "out of order": Weather(delay=0.002, jitter=0.008),
    "doubled": Weather(doubled=0.2),
    "5% damaged": Weather(damaged=0.05),
    "all of it": Weather(lost=0.02, doubled=0.05, damaged=0.02, delay=0.002, jitter=0.006),
}


@pytest.fixture
def line() -> Iterator[Line]:
    """A line; the test is skipped where none can be made."""
    try:
        made = Line()
    except OSError as error:
        pytest.skip(f"no TUN device can be made here: {error}")
    with made:
        yield made


@pytest.fixture
def reference(kv_compress: CommandLine, tmp_path: Path) -> bytes:
    """The artefact of the sample, made without a network."""
    assert kv_compress("-input", SAMPLE, "-output", "reference").returncode == 0
    data = (tmp_path / "reference").read_bytes()
    (tmp_path / "reference").unlink()
    return data


def far_address(server: ServerProcess, line: Line) -> str:
    """Where clients find the server, over the line."""
    return f"{line.far}:{server.addresses[0].rsplit(':', 1)[1]}"


@pytest.mark.parametrize("name", WEATHER)
def test_the_same_there_and_back(
    start: Start, line: Line, reference: bytes, tmp_path: Path, name: str
) -> None:
    """TCP makes up for it: every artefact is the one that is made without a network."""
    server = start("--listen", f"{line.near}:0", "--insecure")
    restored: set[bytes] = set()
    begin = time.monotonic()
    line.weather = WEATHER[name]
    with kvcompress.Client(far_address(server, line), timeout=PATIENCE) as client:
        for number in range(ROUNDS):
            out, back = tmp_path / f"out{number}", tmp_path / f"back{number}"
            client.compress(SAMPLE, out, codec="int4")
            assert out.read_bytes() == reference
            client.decompress(out, back)
            restored.add(back.read_bytes())
    line.weather = Weather()
    assert len(restored) == 1
    wait_until_idle(server)
    took = time.monotonic() - begin
    print(f"{name}: {ROUNDS} times there and back in {took:.1f} s; {line.counts}")
    assert line.counts["passed"] > ROUNDS * SAMPLE.stat().st_size / 1500


def test_a_line_on_which_nothing_passes_any_more(start: Start, line: Line, tmp_path: Path) -> None:
    """The client's deadline ends its call, and the server's watch ends the stream."""
    server = start("--listen", f"{line.near}:0", "--insecure", "--stall-seconds", "2")
    with kvcompress.Client(far_address(server, line), attempts=1, timeout=3) as client:

        def cut(sent: int) -> None:
            if sent > 0:
                line.weather = Weather(lost=1)

        with pytest.raises(kvcompress.KVCompressError) as caught:
            client.compress(SAMPLE, tmp_path / "out", progress=cut, codec="int4")
        assert caught.value.code in {"DEADLINE_EXCEEDED", "UNAVAILABLE"}
    wait_until_idle(server)
    assert list(tmp_path.glob("out*")) == []


def test_clients_of_a_dead_line_can_be_closed(start: Start, line: Line, tmp_path: Path) -> None:
    """What is not acknowledged for 20 seconds ends the connection: else TCP tries for 15 minutes.

    gRPC ends no call whose message is half in a socket, which the closing of a channel waits for.
    """
    server = start("--listen", f"{line.near}:0", "--insecure", "--stall-seconds", "2")

    def cut(sent: int) -> None:
        if sent > 0:
            line.weather = Weather(lost=1)

    def call(number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with (
            kvcompress.Client(
                far_address(server, line), attempts=1, timeout=3, options=options
            ) as client,
            pytest.raises(kvcompress.KVCompressError),
        ):
            client.compress(SAMPLE, tmp_path / f"out{number}", progress=cut, codec="int4")

    async def call_async() -> None:
        async with kvcompress.aio.Client(
            far_address(server, line), attempts=1, timeout=3
        ) as client:
            with pytest.raises(kvcompress.KVCompressError):
                await client.compress(SAMPLE, tmp_path / "out", progress=cut, codec="int4")

    threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    line.weather = Weather()
    asyncio.run(call_async())
    wait_until_idle(server)
    assert list(tmp_path.glob("out*")) == []


def test_what_the_checksum_of_tcp_does_not_find_is_found_by_tls(
    start: Start, line: Line, reference: bytes, tmp_path: Path
) -> None:
    """Words that changed places: over TLS an attempt ends with an error or the right bytes."""
    authority = Authority(tmp_path, "ours")
    pair = authority.sign("server", names=f"IP:{line.far}")
    server = start("--listen", f"{line.near}:0", *pair.server_flags)
    right = errors = 0
    line.weather = Weather(forged=0.002)
    for number in range(10):
        out = tmp_path / f"out{number}"
        with kvcompress.Client(
            far_address(server, line),
            root_certificates=authority.certificate,
            attempts=1,
            timeout=PATIENCE,
        ) as client:
            try:
                client.compress(SAMPLE, out, codec="int4")
            except kvcompress.KVCompressError:
                errors += 1
                assert not out.exists()
            else:
                right += 1
                assert out.read_bytes() == reference
    print(f"{right} right, {errors} errors, {line.counts}")
    assert line.counts["forged"] > 0
    assert errors > 0
    line.weather = Weather()
    wait_until_idle(server)
