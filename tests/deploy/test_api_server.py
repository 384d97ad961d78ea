# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The manifests, applied to a real API server of Kubernetes.

It is looked for in KVCOMPRESS_KUBE_APISERVER and on the PATH: no package registry has a
built one, and to build it takes a quarter of an hour.
"""

import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import yaml
from authority import openssl
from manifests import APPLIED, Manifest, custom_resources, of_kind, render, the
from tools import Fact, Tool, free_port, program

PATIENCE = 120
TOKEN = "admin"  # of a server on loopback that lives for a minute
PLURALS = {"NetworkPolicy": "networkpolicies"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class ApiServer:
    """An API server with an etcd of its own, on loopback. No kubelet, no controllers."""

    def __init__(self, binary: str, etcd: str, folder: Path) -> None:
        """Starts both."""
        self._port, client, peer = free_port(), free_port(), free_port()
        key = folder / "sa.key"
        openssl("genrsa", "-out", key, "2048")
        tokens = folder / "tokens.csv"
        tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
        store, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        commands = [
            [
                *(etcd, "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync=true"),
                *("--listen-client-urls", store, "--advertise-client-urls", store),
                *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
                *("--initial-cluster", f"default={peers}", "--log-level", "warn"),
            ],
            [
                *(binary, f"--etcd-servers={store}", f"--secure-port={self._port}"),
                *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"),
                *(f"--cert-dir={folder / 'certs'}", f"--service-account-key-file={key}"),
                *(f"--service-account-signing-key-file={key}", f"--token-auth-file={tokens}"),
                *("--service-account-issuer=https://test", "--authorization-mode=RBAC"),
                *("--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none"),
                "--disable-admission-plugins=ServiceAccount",
            ],
        ]
        self._processes = []
        self._log = folder / "log"
        for command in commands:
            with self._log.open("ab") as log:
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def stop(self) -> None:
        """Ends both."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def request(self, method: str, path: str, body: str = "") -> tuple[int, Any]:
        """Status and answer."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = HTTPSConnection("127.0.0.1", self._port, timeout=60, context=context)
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text) if text.startswith("{") else text

    def wait(self, path: str) -> None:
        """Waits until a path can be read."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self.request("GET", path)[0] == 200:
                    return
            except (OSError, HTTPException):
                pass
            assert time.monotonic() < deadline, self._log.read_text()[-4000:]
            time.sleep(0.1)

    def version(self) -> str:
        """Of Kubernetes."""
        return str(self.request("GET", "/version")[1]["gitVersion"])

    def apply(self, manifest: Manifest) -> tuple[int, Any]:
        """Server-side apply, with no unknown and no repeated field."""
        api, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        metadata = manifest["metadata"]
        if "namespace" in metadata:
            root += f"/namespaces/{metadata['namespace']}"
        plural = PLURALS.get(kind, f"{kind.lower()}s")
        path = f"{root}/{plural}/{metadata['name']}?fieldManager=test&fieldValidation=Strict"
        return self.request("PATCH", path, yaml.safe_dump(manifest))


@pytest.fixture(scope="module")
def tools(tool: Tool) -> Path:
    """Folder of kustomize and the custom resources."""
    return tool("kubernetes")


@pytest.fixture(scope="module")
def server(
    tool: Tool, tools: Path, tmp_path_factory: pytest.TempPathFactory, fact: Fact
) -> Iterator[ApiServer]:
    """An API server that knows cert-manager's and the Prometheus operator's resources."""
    binary = os.environ.get("KVCOMPRESS_KUBE_APISERVER") or shutil.which("kube-apiserver")
    if binary is None:
        pytest.skip("no kube-apiserver on the PATH or in KVCOMPRESS_KUBE_APISERVER")
    etcd = program("etcd", "etcd-server", tool)
    begun = time.monotonic()
    server = ApiServer(binary, etcd, tmp_path_factory.mktemp("api-server"))
    try:
        server.wait("/readyz")
        fact(f"Kubernetes {server.version()}, ready in {time.monotonic() - begun:.0f} s")
        for definition in custom_resources(tools):
            assert server.apply(definition)[0] == 201
            spec = definition["spec"]
            server.wait(f"/apis/{spec['group']}/v1/{spec['names']['plural']}")
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("folder", APPLIED)
def test_apply(server: ApiServer, tools: Path, folder: str, fact: Fact) -> None:
    """Every object is stored; a second time nothing is refused either."""
    manifests = render(tools, folder)
    for manifest in manifests * 2:
        status, answer = server.apply(manifest)
        assert status in {200, 201}, answer
    fact(f"{folder}: {len(manifests)} objects applied")


def test_pods_are_admitted(server: ApiServer, tools: Path, fact: Fact) -> None:
    """The namespaces enforce a Pod Security Standard; the pods of the Deployments hold it."""
    for folder in APPLIED:
        manifests = render(tools, folder)
        deployment = the(manifests, "Deployment")
        namespace = deployment["metadata"]["namespace"]
        assert server.apply(the(manifests, "Namespace"))[0] in {200, 201}
        template = deployment["spec"]["template"]
        metadata = {**template["metadata"], "name": "a", "namespace": namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        status, answer = server.apply(pod)
        assert status == 201, answer
        path = f"/api/v1/namespaces/{namespace}/pods/a"
        assert server.request("DELETE", f"{path}?gracePeriodSeconds=0")[0] == 200
    fact("their pods were admitted: restricted for the pool, baseline next to the engine")


def test_server_refuses_what_is_wrong(server: ApiServer, tools: Path) -> None:
    """So that what it takes means something."""
    manifests = render(tools, "base")
    assert server.apply(the(manifests, "Namespace"))[0] in {200, 201}
    template = the(manifests, "Deployment")["spec"]["template"]
    for change, words in (
        ({"readinessProbes": {}}, "field not declared in schema"),
        ({"resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "2Gi"}}}, "limit"),
        ({"securityContext": {"allowPrivilegeEscalation": True}}, "violates PodSecurity"),
    ):
        [container] = template["spec"]["containers"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "b", "namespace": "kvcompress"},
            "spec": {**template["spec"], "containers": [{**container, **change}]},
        }
        status, answer = server.apply(pod)
        assert status >= 400
        assert words in answer["message"]


def test_autoscaler_reads_the_metric_it_names(server: ApiServer, tools: Path) -> None:
    """As the API server stored it: bytes in flight first, then the CPU."""
    manifests = render(tools, "overlays/production")
    assert server.apply(the(manifests, "Namespace"))[0] in {200, 201}
    for manifest in of_kind(manifests, "HorizontalPodAutoscaler"):
        status, stored = server.apply(manifest)
        assert status in {200, 201}
        assert [metric["type"] for metric in stored["spec"]["metrics"]] == ["Pods", "Resource"]
