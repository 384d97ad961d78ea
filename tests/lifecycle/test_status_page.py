# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""/statusz: what a person sees of a server in a browser."""

import html
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import grpc
import pytest
from server_process import PATIENCE, ServerProcess, Start
from streams import CompressStream

import kvcompress
from kvcompress.v1 import compression_service_pb2 as pb
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
VOID = {"meta", "html", "head", "body"}


class Page(HTMLParser):
    """Rows of all tables, as text; every tag closed as it was opened."""

    def __init__(self, text: str) -> None:
        """Reads a page."""
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert set(self.open) <= VOID

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begins a row, or a cell."""
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Ends what was begun last."""
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Adds to the cell."""
        if self.open and self.open[-1] == "td":
            self.rows[-1][-1] += data

    def row(self, first: str) -> list[str]:
        """The row that begins so."""
        return next(row for row in self.rows if row and row[0] == first)


def page_of(server: ServerProcess) -> Page:
    """The page as it is now."""
    status, content_type, text = server.get("/statusz")
    assert (status, content_type) == (200, "text/html; charset=utf-8")
    return Page(text)


def wait_for_rows(server: ServerProcess, wanted: dict[str, list[str]]) -> None:
    """Waits for rows to begin so: a call is counted just after its client has seen its end."""
    give_up = time.monotonic() + PATIENCE
    while True:
        page = page_of(server)
        found = {name: page.row(name)[: len(cells)] for name, cells in wanted.items()}
        if found == wanted:
            return
        assert time.monotonic() < give_up, found
        time.sleep(0.05)


def test_says_what_the_server_is(start: Start) -> None:
    """Version, uptime, addresses, limits, and that it is serving."""
    server = start("--memory-budget-bytes", str(1 << 26))
    text = server.get("/statusz")[2]
    assert "kv-compressd: SERVING" in text
    page = Page(text)
    assert kvcompress.__version__ in page.row("version")[1]
    assert re.fullmatch(r"\d+(\.\d+)?m?s|0", page.row("uptime")[1])
    assert page.row("listening on")[1] == server.addresses[0]
    assert page.row("connections")[1] == "no TLS"
    assert page.row("memory budget, bytes")[1] == str(1 << 26)


def test_shows_load_calls_and_codecs(start: Start) -> None:
    """While a stream runs and after it."""
    server = start()
    with server.channel() as channel:
        stream = CompressStream(channel)
        page = page_of(server)
        assert page.row("Compress")[1:4] == ["1", "0", "0"]
        assert page.row("memory reserved by streams")[1] == "4.0 MiB"
        stream.finish()
    with kvcompress.Client(server.addresses[0]) as client:
        client.measure(SAMPLE, codec="int8")
    compressed, measured = ["Compress", "0", "1", "0"], ["Measure", "0", "1", "0"]
    wait_for_rows(server, {"Compress": compressed, "Measure": measured})
    page = page_of(server)
    assert page.row("int8")[1:3] == ["1", "1.92x"]
    assert page.row("memory reserved by streams")[1] == "0.0 KiB"


def test_last_errors_have_the_names_of_their_calls(start: Start) -> None:
    """And the reason; hostile names do not get onto the page."""
    server = start()
    with server.channel() as channel:
        stub = CompressionServiceStub(channel)
        for name in ("engine-1", "<script>alert(1)</script>"):
            bad = [pb.CompressRequest(safetensors=b"<b>x</b>")]
            with pytest.raises(grpc.RpcError):
                list(stub.Compress(iter(bad), metadata=(("x-request-id", name),)))
    wait_for_rows(server, {"Compress": ["Compress", "0", "0", "2"]})
    rows = [row for row in page_of(server).rows if len(row) == 7 and "INVALID" in row[2]]
    assert [row[1:4] for row in rows] == [
        ["Compress", "INVALID_ARGUMENT", "INVALID_MESSAGE_ORDER"]
    ] * 2
    assert rows[1][5] == "engine-1"
    assert re.fullmatch("[0-9a-f]{32}", rows[0][5])
    text = html.unescape(server.get("/statusz")[2])
    assert "<script" not in text
    assert "<b>" not in text
