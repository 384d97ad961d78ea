# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Real servers under load, watched by a real Prometheus with the rules of the repository.

The load is one of two: what makes every panel and some alerts move, for tests; and what servers
bear without effort, for the picture.
"""

import contextlib
import functools
import hashlib
import json
import math
import random
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from authority import Authority
from server_process import ServerProcess
from tools import REPOSITORY, free_port

import kvcompress
from kvcompress.store import ArtefactStore
from kvcompress.store._exposition import exposition

DASHBOARD = REPOSITORY / "deploy" / "grafana" / "kvcompress.json"
SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
PATIENCE = 120
# What Grafana puts in place of its variables, with a scrape each second.
VARIABLES = {"$__rate_interval": "10s", "$job": "kvcompress", "$instance": ".+"}
# A codec each, and the level or the verdict that the others do not give.
CODECS = ("auto", "ecsq", "int4", "int8", "int4-kivi", "lossless")
# The least budget there is holds four streams of the default size.
BUDGET = 16 << 20

# What clients choose that care for quality, and so what a healthy server mostly compresses with.
HEALTHY_CODECS = ("auto", "auto", "auto", "int8", "lossless")
# Seconds between the calls of one client, on average.
HEALTHY_PAUSE = 0.4
# Of a certificate that is renewed in time.
HEALTHY_DAYS = 60

# What loads the servers until asked to stop, given their addresses and who signed a certificate.
Load = Callable[[threading.Event, str, str, Path], None]
# The flags of the two servers.
Flags = Callable[[Authority], list[list[str]]]
Series = dict[str, list[tuple[float, float]]]


class Engine:
    """A page of metrics with a real store, which each scrape makes fuller, and vLLM's counters."""

    def __init__(self, folder: Path) -> None:
        """Serves it on loopback."""
        self._store = ArtefactStore(folder, {"capacity_bytes": 100 << 10})
        self._runs = self._store.runs("tiny", {"model": "org/tiny"})
        self._saved = 0
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answers a scrape."""
                page = engine._page().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.target = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._store.close()

    def _page(self) -> str:
        """Saves an artefact, reads four of five, and returns what there is then."""
        self._saved += 1
        block = hashlib.sha256(str(self._saved).encode()).hexdigest()
        header = json.dumps({"__metadata__": {"blocks": block}}).encode()
        with self._runs.staged() as path:
            Path(path).write_bytes(len(header).to_bytes(8, "little") + header)
            self._runs.add(path, [block])
        artefact = self._runs.artefact_of(block)
        if self._saved % 5 and artefact is not None:
            self._runs.read(artefact, 1 << 20)
        return exposition("/cache", self._store.account()) + (
            f"vllm:external_prefix_cache_queries_total {512 * self._saved}\n"
            f"vllm:external_prefix_cache_hits_total {400 * self._saved}\n"
        )


class Prometheus:
    """On loopback, scraping each second, with the rules evaluated as often."""

    def __init__(self, binary: str, folder: Path, targets: list[str], engine: str) -> None:
        """Starts it. Each server gets the labels that Kubernetes would give it."""
        self._url = f"http://127.0.0.1:{free_port()}"
        self.begun = time.time()
        pods = [
            {"targets": [target], "labels": {"namespace": "kvcompress", "pod": f"kvcompress-{i}"}}
            for i, target in enumerate(targets)
        ]
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(REPOSITORY / "deploy" / "prometheus" / "rules.yaml")],
            "scrape_configs": [
                {"job_name": "kvcompress", "static_configs": pods},
                {"job_name": "vllm", "static_configs": [{"targets": [engine]}]},
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        command = [
            *(binary, f"--config.file={folder}/prometheus.yaml", "--log.level=warn"),
            *(f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self._url[7:]}"),
        ]
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()

    def get(self, path: str, **parameters: object) -> Any:  # noqa: ANN401
        """The data of an answer; waits until the server is there."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                url = f"{self._url}/api/v1/{path}?{urlencode(parameters)}"
                with urllib.request.urlopen(url, timeout=30) as reply:  # noqa: S310
                    return json.load(reply)["data"]
            except OSError:
                assert self._process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)

    def query(self, expression: str) -> Series:
        """The points since the start by their labels. NaN and infinity are no points."""
        now = time.time()
        data = self.get("query_range", query=expression, start=self.begun, end=now, step=1)
        series = {}
        for result in data["result"]:
            labels = {k: v for k, v in result["metric"].items() if k != "__name__"}
            points = [(float(at) - self.begun, float(value)) for at, value in result["values"]]
            series[json.dumps(labels)] = [point for point in points if math.isfinite(point[1])]
        return {labels: points for labels, points in series.items() if points}


def panels() -> list[dict[str, Any]]:
    """Those of the committed dashboard that show data."""
    board = json.loads(DASHBOARD.read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def filled_in(expression: str) -> str:
    """A query of the dashboard, as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def attempt(act: Callable[[], object]) -> None:
    """An action whose error is part of the picture."""
    with contextlib.suppress(kvcompress.KVCompressError):
        act()


def forever(stop: threading.Event, act: Callable[[], object]) -> None:
    """Repeats an action whose errors are part of the picture."""
    while not stop.is_set():
        attempt(act)


def start_load(stop: threading.Event, plain: str, secure: str, authority: Path) -> None:
    """Threads that compress, restore, measure and do what must fail, until asked to stop."""
    cache = SAMPLE.read_bytes()
    clients = [
        kvcompress.Client(plain, attempts=1),
        kvcompress.Client(secure, root_certificates=authority, attempts=1),
    ]
    artefact = clients[0].compress(cache, codec="int8").artefact
    assert artefact is not None
    damaged = bytearray(artefact)
    damaged[-1000] ^= 1
    codecs = iter(CODECS * 100_000)
    actions: list[Callable[[], object]] = []
    for client in clients:
        actions += [
            lambda c=client: c.compress(cache, codec=next(codecs)),  # type: ignore[misc]
            lambda c=client: c.compress(cache, codec=next(codecs)),  # type: ignore[misc]
            lambda c=client: c.decompress(artefact),  # type: ignore[misc]
            lambda c=client: c.measure(cache, codec="int4-hadamard"),  # type: ignore[misc]
        ]

    def mistakes() -> None:
        attempt(lambda: clients[1].decompress(bytes(damaged)))
        attempt(lambda: clients[1].compress(artefact))
        stop.wait(1)

    def crowd() -> None:
        """More streams at once than the budget of the plain server holds."""
        burst = [
            threading.Thread(target=attempt, args=(lambda: clients[0].compress(cache),))
            for _ in range(8)
        ]
        for thread in burst:
            thread.start()
        for thread in burst:
            thread.join()
        stop.wait(1)

    for action in [*actions, mistakes, crowd]:
        threading.Thread(target=forever, args=(stop, action), daemon=True).start()


def strained_flags(authority: Authority) -> list[list[str]]:
    """One server with the least budget, and one with TLS."""
    return [["--memory-budget-bytes", str(BUDGET)], authority.sign("server").server_flags]


def healthy_flags(authority: Authority) -> list[list[str]]:
    """One server as it comes, and one with TLS."""
    return [[], authority.sign("server", days=HEALTHY_DAYS).server_flags]


def healthy_load(stop: threading.Event, plain: str, secure: str, authority: Path) -> None:
    """Threads that compress, restore and measure with pauses, until asked to stop."""
    cache = SAMPLE.read_bytes()
    clients = [
        kvcompress.Client(plain),
        kvcompress.Client(secure, root_certificates=authority),
    ]
    chance = random.Random(1)  # noqa: S311 - no secret

    def act(client: kvcompress.Client) -> None:
        artefact = client.compress(cache, codec=chance.choice(HEALTHY_CODECS)).artefact
        stop.wait(chance.expovariate(1 / HEALTHY_PAUSE))
        client.decompress(artefact or b"")
        if chance.random() < 0.2:
            client.measure(cache, codec="int8")
        stop.wait(chance.expovariate(1 / HEALTHY_PAUSE))

    for client in clients * 3:
        action = functools.partial(act, client)
        threading.Thread(target=forever, args=(stop, action), daemon=True).start()


@contextlib.contextmanager
def observed(
    binary: str, folder: Path, flags_of: Flags = strained_flags, load: Load = start_load
) -> Iterator[Prometheus]:
    """Two loaded servers and their Prometheus."""
    authority = Authority(folder, "ours")
    flags = flags_of(authority)
    servers: list[ServerProcess] = []
    stop = threading.Event()
    engine = Engine(folder / "store")
    try:
        for each in flags:
            servers.append(ServerProcess(each, {}, folder))
            servers[-1].wait_until_serving()
        targets = [server.http.removeprefix("http://") for server in servers]
        prometheus = Prometheus(binary, folder, targets, engine.target)
        try:
            # Increases are seen from the second scrape on.
            while not prometheus.query("min(count_over_time(up[1m])) >= 2"):
                time.sleep(0.5)
            secure = servers[1].addresses[0]
            load(stop, servers[0].addresses[0], secure, authority.certificate)
            yield prometheus
        finally:
            prometheus.stop()
    finally:
        stop.set()
        engine.stop()
        for server in servers:
            server.kill()
