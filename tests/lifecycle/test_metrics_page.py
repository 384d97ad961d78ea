# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The metrics page: valid, small on an idle server, complete under use, and counting."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import PATIENCE, SERVICE, ServerProcess, Start, wait_until
from streams import CompressStream

import kvcompress
from kvcompress.v1 import compression_service_pb2
from kvcompress.v1.compression_service_pb2_grpc import CompressionServiceStub
from kvcompress.v1.server_info_pb2 import GetServerInfoRequest

# Name and labels of a series.
Series = tuple[str, frozenset[tuple[str, str]]]

SAMPLE = Path(__file__).parents[1] / "data" / "smollm2_kjv_96_bf16.safetensors"
# A pool of hundreds of sidecars is scraped as a whole, and most of them idle.
MAX_IDLE_SERIES = 300

# By whether the requests and whether the responses are streams.
TYPES = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}
METHODS = {
    method.name: TYPES[method.client_streaming, method.server_streaming]
    for method in compression_service_pb2.DESCRIPTOR.services_by_name["CompressionService"].methods
}
CODES_OF_RULES = ["INTERNAL", "UNKNOWN", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"]
WARNINGS = [
    "NO_ROLES",
    "NOT_FINITE",
    "LAYOUT_SUSPECT",
    "ROPE_SUSPECT",
    "PROFILE_AMBIGUOUS",
    "PROFILE_POOR_FIT",
    "PROFILE_POOR_RATE",
    "PROFILE_UNUSUAL",
    "PROFILE_TRAINING_CACHE",
]
REASONS = ["HEADER_DAMAGED", "PAYLOAD_DAMAGED", "TRUNCATED", "TRAILING_BYTES", "IDENTITY_MISMATCH"]
CLOSED = ["header_timeout", "write_timeout", "evicted", "address_limit", "bad_request"]
# Histograms of quality: those of the table of metrics, and three that are of no metric alone.
TABLE = Path(__file__).parents[2] / "core" / "metrics" / "metric_table.cc"
QUALITY = re.findall(r'\.histogram = "(\w+)"', TABLE.read_text())
QUALITY += ["compression_ratio", "value_bytes", "worst_tensor_snr_decibels"]
SINGLE = [
    "kvcompress_inflight_bytes",
    "kvcompress_inflight_budget_bytes",
    "kvcompress_connections",
    "kvcompress_connections_limit",
    "kvcompress_connections_accepted_total",
    "kvcompress_reachable",
    "kvcompress_http_connections",
    "kvcompress_tls_certificate_expiry_timestamp_seconds",
    "kvcompress_tls_reload_failures_total",
    "kvcompress_profiles",
    "kvcompress_profile_bytes",
    "kvcompress_profiles_refused",
    "kvcompress_profile_refusals_total",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_open_fds",
]


def series(name: str, **labels: str) -> Series:
    return name, frozenset(labels.items())


def samples(server: ServerProcess) -> dict[Series, float]:
    status, content_type, page = server.get("/metrics")
    assert status == 200
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[Series, float] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        parts = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        assert parts, line
        labels = dict(re.findall(r'(\w+)="([^"]*)"', parts[2] or ""))
        assert series(parts[1], **labels) not in found, line
        found[series(parts[1], **labels)] = float(parts[3])
    return found


def codecs(server: ServerProcess) -> list[str]:
    with server.channel() as channel:
        info = CompressionServiceStub(channel).GetServerInfo(GetServerInfoRequest())
    return [codec.name for codec in info.codecs]


def grpc_labels(method: str) -> dict[str, str]:
    return {"grpc_type": METHODS[method], "grpc_service": SERVICE, "grpc_method": method}


def from_the_start() -> Iterator[Series]:
    """What alerts and single numbers of the dashboard count: zero until something happens."""
    for name in SINGLE:
        yield series(name)
    for method in METHODS:
        labels = grpc_labels(method)
        yield series("grpc_server_started_total", **labels)
        yield series("grpc_server_handled_total", **labels, grpc_code="OK")
        for name in ("requests", "input_bytes", "output_bytes"):
            yield series(f"kvcompress_{name}_total", method=method)
        for code in CODES_OF_RULES:
            yield series("kvcompress_errors_total", method=method, code=code)
    for reason in ("budget", "limit", "draining"):
        yield series("kvcompress_requests_rejected_total", reason=reason)
    for reason in ("limit", "host_limit", "descriptors"):
        yield series("kvcompress_connections_refused_total", reason=reason)
    for reason in REASONS:
        yield series("kvcompress_integrity_failures_total", reason=reason)
    for reason in ("missing", "unknown", "mismatch"):
        yield series("kvcompress_profile_failures_total", reason=reason)
    for code in WARNINGS:
        yield series("kvcompress_warnings_total", code=code)
    for reason in CLOSED:
        yield series("kvcompress_http_connections_closed_total", reason=reason)


def of_a_method(method: str) -> Iterator[Series]:
    """What is there once a stream of the method has ended well."""
    yield series("grpc_server_handling_seconds_count", **grpc_labels(method))
    yield series("kvcompress_request_duration_seconds_count", method=method)


def of_a_codec(codec: str) -> Iterator[Series]:
    """What is there, all at once, once a codec has compressed."""
    for name in QUALITY:
        yield series(f"kvcompress_{name}_count", codec=codec)
    yield series("kvcompress_codec_seconds_count", codec=codec, stage="encode")
    yield series("kvcompress_saved_bytes_total", codec=codec)
    for verdict in ("passed", "failed"):
        yield series("kvcompress_verdicts_total", codec=codec, verdict=verdict)
    for level in ("EXCELLENT", "GOOD", "ACCEPTABLE", "POOR"):
        yield series("kvcompress_quality_total", codec=codec, level=level)


def test_an_idle_server_has_few_series(start: Start) -> None:
    """What alerts count among them, and nothing that is not zero."""
    found = samples(start())
    assert len(found) < MAX_IDLE_SERIES
    assert [wanted for wanted in from_the_start() if wanted not in found] == []
    # The page itself comes over a connection.
    assert found.pop(series("kvcompress_http_connections")) == 1
    moving = (
        *("process_", "kvcompress_build_info", "kvcompress_inflight_budget_bytes"),
        *("kvcompress_connections", "kvcompress_reachable"),
    )
    assert [key for key, value in found.items() if value and not key[0].startswith(moving)] == []


def test_every_series_is_there_after_its_first_use(start: Start) -> None:
    """And those of other methods and codecs are not."""
    server = start()
    names = codecs(server)
    cache = SAMPLE.read_bytes()
    with kvcompress.Client(server.addresses[0]) as client:
        for name in names:
            client.compress(cache, codec=name)
    wanted = [key for name in names for key in of_a_codec(name)]
    wanted += [*from_the_start(), *of_a_method("Compress")]
    wait_until(lambda: set(wanted) <= samples(server).keys(), "every series")
    found = samples(server)
    unused = {"Decompress", "Measure", "CompressFile"}
    histograms = [key for key in found if key[0] == "kvcompress_request_duration_seconds_count"]
    assert not {dict(labels)["method"] for _, labels in histograms} & unused
    assert not [key for key in found if ("stage", "decode") in key[1]]
    saved = found[series("kvcompress_saved_bytes_total", codec="int4")]
    assert len(cache) / 2 < saved < len(cache)


def test_measuring_saves_nothing(start: Start) -> None:
    """It makes no artefact; its verdicts count all the same."""
    server = start()
    with kvcompress.Client(server.addresses[0]) as client:
        client.measure(SAMPLE, codec="int8")
    passed = series("kvcompress_verdicts_total", codec="int8", verdict="passed")
    wait_until(lambda: samples(server).get(passed, 0) == 1, "the verdict")
    assert samples(server)[series("kvcompress_saved_bytes_total", codec="int8")] == 0


def test_build_info(start: Start) -> None:
    found = samples(start())
    [info] = [key for key in found if key[0] == "kvcompress_build_info"]
    assert found[info] == 1
    assert {label for label, _ in info[1]} == {"version", "api_version", "format_version"}


def test_promtool_accepts_the_page(start: Start) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on the PATH")
    result = subprocess.run(
        [promtool, "check", "metrics"],
        input=start().get("/metrics")[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_bytes_in_flight_come_back_to_zero_and_a_call_is_counted(start: Start) -> None:
    server = start()
    with server.channel() as channel:
        stream = CompressStream(channel)
        stream.finish()
    handled = series("kvcompress_request_duration_seconds_count", method="Compress")
    grpc_handled = series("grpc_server_handled_total", **grpc_labels("Compress"), grpc_code="OK")
    in_flight = series("kvcompress_inflight_bytes")
    give_up = time.monotonic() + PATIENCE
    # The server counts a call just after its client has seen the end, one series after another.
    found = samples(server)
    while not (found.get(handled) and found[grpc_handled] and found[in_flight] == 0):
        assert time.monotonic() < give_up
        found = samples(server)

    received = sum(request.ByteSize() for request in stream.requests)
    sent = sum(response.ByteSize() for response in stream.responses)
    assert found[handled] == 1
    assert found[series("grpc_server_started_total", **grpc_labels("Compress"))] == 1
    assert found[grpc_handled] == 1
    assert found[series("kvcompress_requests_total", method="Compress")] == 1
    assert found[series("kvcompress_input_bytes_total", method="Compress")] == received
    assert found[series("kvcompress_output_bytes_total", method="Compress")] == sent
    assert found[series("kvcompress_compression_ratio_count", codec="int4")] == 1
    assert found[series("kvcompress_codec_seconds_count", codec="int4", stage="encode")] == 1
    assert found[series("kvcompress_quality_total", codec="int4", level="EXCELLENT")] == 1
    assert found[series("kvcompress_verdicts_total", codec="int4", verdict="passed")] == 1
    assert found[in_flight] == 0
    assert sum(v for (name, _), v in found.items() if name == "kvcompress_errors_total") == 0


def test_the_root_links_to_the_other_pages(start: Start) -> None:
    server = start()
    status, content_type, page = server.get("/")
    assert (status, content_type) == (200, "text/html; charset=utf-8")
    links = re.findall(r"<a href=(\S+?)>", page)
    assert links == ["/statusz", "/metrics", "/healthz", "/livez"]
    assert [server.get(link)[0] for link in links] == [200] * 4


def test_other_paths_are_not_found(start: Start) -> None:
    server = start()
    for path in ("/x", "/metrics/x", "/healthz/", "/etc/passwd"):
        assert server.get(path)[0] == 404
