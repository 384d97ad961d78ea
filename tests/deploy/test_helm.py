# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The Helm chart: linted, and the same objects as kustomize makes, which the other tests check."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import claimed, text_of
from manifests import Loader, Manifest, of_kind, render, the
from tools import REPOSITORY, Tool, output

CHART = REPOSITORY / "deploy" / "helm" / "kv-compress"
EXAMPLE = CHART / "examples" / "vllm.yaml"
PRODUCTION = CHART / "examples" / "production.yaml"
# The base asks a registry, as kube-score wants; the chart takes what is on the node.
ASKING = ("--set", "image.pullPolicy=Always")
# Of the overlay, what the chart leaves to it: the rules and the dashboard.
NOT_OF_THE_CHART = ("PrometheusRule", "ConfigMap")
# helm as the tests build it knows of no version of Kubernetes but an old one.
VERSION = ("--kube-version", "1.34.0")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def helm(tool: Tool) -> Path:
    """The program."""
    return tool("helm")


def made(helm: Path, namespace: str, *arguments: object) -> list[Manifest]:
    """The objects of the chart."""
    command = [helm, "template", "release", CHART, "--namespace", namespace, *VERSION]
    return list(yaml.load_all(output(*command, *arguments), Loader))


def by_name(value: Any) -> Any:  # noqa: ANN401
    """An object with its lists of named things in the order of their names.

    Neither the order of variables, mounts and volumes means anything, nor space within JSON.
    """
    if isinstance(value, dict):
        return {key: by_name(each) for key, each in value.items()}
    if isinstance(value, list):
        things = [by_name(each) for each in value]
        named = all(isinstance(each, dict) and "name" in each for each in things)
        return sorted(things, key=lambda each: str(each["name"])) if named else things
    if isinstance(value, str) and value.startswith("--kv-transfer-config="):
        return yaml.safe_load(value.partition("=")[2])
    return value


def objects(manifests: list[Manifest]) -> dict[str, Manifest]:
    """By kind and name all but namespaces, which `helm install` makes, in comparable order."""
    return {
        f"{each['kind']} {each['metadata']['name']}": by_name(each)
        for each in manifests
        if each["kind"] != "Namespace"
    }


@pytest.mark.parametrize("values", [(), ("--values", EXAMPLE), ("--values", PRODUCTION)])
def test_lint(helm: Path, values: tuple[object, ...]) -> None:
    output(helm, "lint", "--strict", *VERSION, CHART, *values)


@pytest.mark.parametrize(
    ("folder", "namespace", "values"),
    [
        ("base", "kvcompress", ASKING),
        ("examples/vllm", "inference", ("--values", EXAMPLE)),
        ("overlays/production", "kvcompress", ("--values", PRODUCTION)),
    ],
)
def test_objects_are_those_of_kustomize(
    helm: Path, tool: Tool, folder: str, namespace: str, values: tuple[object, ...]
) -> None:
    """Which are validated by schemas, by kube-score and by an API server."""
    wanted = render(tool("kubernetes"), folder)
    assert the(wanted, "Namespace")["metadata"]["name"] == namespace
    wanted = [each for each in wanted if each["kind"] not in NOT_OF_THE_CHART]
    assert objects(made(helm, namespace, *values)) == objects(wanted)


def test_values(helm: Path) -> None:
    """What can be left out, and what is set."""
    chosen = ["image.tag=1", "pool.replicas=5", "pool.environment.KVCOMPRESS_THREADS=2"]
    options = [part for each in chosen for part in ("--set-string", each)]
    options[2] = "--set"
    deployment = the(made(helm, "a", *options), "Deployment")
    assert deployment["spec"]["replicas"] == 5
    [server] = deployment["spec"]["template"]["spec"]["containers"]
    assert server["image"] == "kvcompress:1"
    assert {"name": "KVCOMPRESS_THREADS", "value": "2"} in server["env"]

    without = ("sidecar.profiles.enabled", "sidecar.sharedDirectory.enabled", "sidecar.monitor")
    options = [part for each in without for part in ("--set", f"{each}=false")]
    manifests = made(helm, "a", "--values", EXAMPLE, *options)
    pod = the(manifests, "Deployment")["spec"]["template"]["spec"]
    assert {volume["name"] for volume in pod["volumes"]} == {"kvcompress-socket", "cache", "shm"}
    names = {variable["name"] for variable in pod["initContainers"][0]["env"]}
    assert not names & {"KVCOMPRESS_PROFILE_DIRECTORY", "KVCOMPRESS_SHARED_DIRECTORY"}
    assert [each["kind"] for each in manifests] == ["Deployment"]

    options = ["--set", "sidecar.profiles.createClaim=false,vllm.profile=qwen"]
    manifests = made(helm, "a", "--values", EXAMPLE, *options)
    assert not of_kind(manifests, "PersistentVolumeClaim")
    [engine] = the(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert by_name(engine["args"][1])["kv_connector_extra_config"]["profile"] == "qwen"


def test_numbers_are_quantities(helm: Path) -> None:
    """As Kubernetes takes them."""
    chosen = ["pool.cpu=2", "pool.cpuLimit=4", "pool.environment.KVCOMPRESS_THREADS=1"]
    options = [part for each in chosen for part in ("--set", each)]
    [server] = pod_of(made(helm, "a", *options))["containers"]
    assert server["resources"]["requests"]["cpu"] == "2"
    assert server["resources"]["limits"]["cpu"] == "4"
    assert {"name": "KVCOMPRESS_THREADS", "value": "1"} in server["env"]


@pytest.mark.parametrize(
    ("memory", "bytes_in_flight"),
    [("3Gi", "752Mi"), ("12Gi", "3056Mi"), ("6G", "1414Mi"), ("3221225472", "752Mi")],
)
def test_bytes_in_flight_follow_from_memory(helm: Path, memory: str, bytes_in_flight: str) -> None:
    """Half of the budget, which is half of what is left beyond 64 MiB."""
    options = ("--set", "pool.autoscaling.enabled=true", "--set", f"pool.memory={memory}")
    scaler = the(made(helm, "a", *options), "HorizontalPodAutoscaler")
    assert scaler["spec"]["metrics"][0]["pods"]["target"]["averageValue"] == bytes_in_flight


@pytest.mark.parametrize(("part", "values"), [("pool", ()), ("sidecar", ("--values", EXAMPLE))])
def test_memory_in_which_no_stream_fits(helm: Path, part: str, values: tuple[object, ...]) -> None:
    """Is refused by name, not found out by the first call."""
    options = ("--set", f"{part}.memory=64Mi")
    refused = subprocess.run(
        [helm, "template", "a", CHART, *VERSION, *map(str, values), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert f"{part}.memory is 64Mi: a server needs 128Mi or more" in refused.stderr
    made(helm, "a", *values, "--set", f"{part}.memory=128Mi")


def pod_of(manifests: list[Manifest]) -> Manifest:
    """The pod of the only Deployment."""
    spec: Manifest = the(manifests, "Deployment")["spec"]["template"]["spec"]
    return spec


def test_an_image_that_was_loaded_by_hand(helm: Path) -> None:
    """Is found: by its name in the release's archive, and without a registry."""
    [server] = pod_of(made(helm, "a"))["containers"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    archived = re.search(r"(?m)^image_name=docker\.io/library/(\S+)$", text_of("deploy/names.sh"))
    assert archived
    assert server["image"] == f"{archived[1]}:{version}"
    assert server["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize(("part", "values"), [("pool", ()), ("vllm", ("--values", EXAMPLE))])
def test_registry_and_nodes(helm: Path, part: str, values: tuple[object, ...]) -> None:
    """Of the pool, and of vLLM with its sidecar."""
    node = {"kubernetes.io/arch": "amd64"}
    toleration = {"key": "reserved", "operator": "Exists", "effect": "NoSchedule"}
    affinity: Manifest = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    place = {"nodeSelector": node, "tolerations": [toleration], "affinity": affinity}
    chosen = [
        f"image.registry={json.dumps('registry.example.com:5000/team/')}",
        f"image.pullSecrets={json.dumps(['first', 'second'])}",
        *(f"{part}.{name}={json.dumps(value)}" for name, value in place.items()),
    ]
    options = [word for each in chosen for word in ("--set-json", each)]
    pod = pod_of(made(helm, "a", *values, *options))
    containers = pod["containers"] + pod.get("initContainers", [])
    for container in containers:
        assert container["image"].startswith("registry.example.com:5000/team/"), container
        assert container["imagePullPolicy"] == "IfNotPresent"
    assert len(containers) == (2 if part == "vllm" else 1)
    assert pod["imagePullSecrets"] == [{"name": "first"}, {"name": "second"}]
    assert {name: pod[name] for name in place} == place


def test_tls_with_a_secret_of_ones_own(helm: Path) -> None:
    """No object of cert-manager; clients are verified unless that is turned off."""
    chosen = "pool.tls.enabled=true,pool.tls.secret=own,pool.tls.verifyClients=false"
    manifests = made(helm, "a", "--set", chosen)
    assert not of_kind(manifests, "Certificate")
    pod = pod_of(manifests)
    [volume] = pod["volumes"]
    assert volume["secret"]["secretName"] == "own"
    [server] = pod["containers"]
    names = {each["name"] for each in server["env"]}
    assert "KVCOMPRESS_TLS_CERT" in names
    assert "KVCOMPRESS_TLS_CLIENT_CA" not in names
    pod = pod_of(made(helm, "a", "--set", "pool.tls.enabled=true"))
    assert "KVCOMPRESS_TLS_CLIENT_CA" in {each["name"] for each in pod["containers"][0]["env"]}


def test_budgets_and_limits(helm: Path) -> None:
    """Of evictions, of servers and of cores."""
    chosen = "pool.disruptionBudget.maxUnavailable=25%,pool.cpuLimit=1500m"
    manifests = made(helm, "a", "--set", chosen)
    assert the(manifests, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "25%"
    [server] = pod_of(manifests)["containers"]
    assert server["resources"]["limits"]["cpu"] == "1500m"
    chosen = "pool.disruptionBudget.enabled=false,pool.autoscaling.enabled=true"
    manifests = made(helm, "a", "--set", f"{chosen},pool.autoscaling.maxReplicas=4")
    assert not of_kind(manifests, "PodDisruptionBudget")
    assert the(manifests, "HorizontalPodAutoscaler")["spec"]["maxReplicas"] == 4
    assert "replicas" not in the(manifests, "Deployment")["spec"]


# What a cluster with cert-manager and the Prometheus operator has of the chart's kinds.
KINDS = {
    "v1": ("PersistentVolumeClaim", "Service", "ServiceAccount"),
    "apps/v1": ("Deployment",),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "cert-manager.io/v1": ("Certificate", "Issuer"),
    "monitoring.coreos.com/v1": ("PodMonitor", "ServiceMonitor"),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "policy/v1": ("PodDisruptionBudget",),
}


def discovery() -> dict[str, Manifest]:
    """What a cluster answers about itself, by the path."""
    answers: dict[str, Manifest] = {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
    }
    groups = []
    for version, kinds in KINDS.items():
        group, _, name = version.rpartition("/")
        if group:
            version_of = {"groupVersion": version, "version": name}
            groups.append({"name": group, "versions": [version_of], "preferredVersion": version_of})
        resources = [
            {"name": f"{kind.lower()}s", "namespaced": True, "kind": kind, "verbs": ["get"]}
            for kind in kinds
        ]
        answers[f"/apis/{version}" if group else f"/api/{version}"] = {
            "kind": "APIResourceList",
            "groupVersion": version,
            "resources": resources,
        }
    answers["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    return answers


class Cluster(BaseHTTPRequestHandler):
    """A cluster as far as `helm install --dry-run` asks one: it has kinds, and no objects."""

    def do_GET(self) -> None:
        """Answers by the path."""
        answer = discovery().get(self.path.partition("?")[0])
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer or {}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Logs nothing."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of one that is there for its version alone."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def notes(helm: Path, cluster: str, cache: Path, *arguments: object) -> str:
    """What `helm install` says at the end."""
    command = ["env", f"KUBECACHEDIR={cache}", helm, "install", "release", CHART]
    options = ["--namespace", "a", "--dry-run=client", "--disable-openapi-validation"]
    text = output(*command, *options, "--kube-apiserver", cluster, *arguments)
    return " ".join(text.partition("\nNOTES:\n")[2].split())


def test_notes(helm: Path, cluster: str, tmp_path: Path) -> None:
    """Where the servers are, and what is missing."""
    text = notes(helm, cluster, tmp_path)
    assert "No registry is set: the image kvcompress:0.1.0 has to be on every node." in text
    assert "dns:///kvcompress.a.svc.cluster.local:50051, in plain text." in text
    assert "vLLM" not in text
    text = notes(helm, cluster, tmp_path, "--values", PRODUCTION)
    assert "No registry" not in text
    assert "with mutual TLS by the secret kvcompress-server-tls." in text
    assert "kvcompress-client-tls" in text
    text = notes(helm, cluster, tmp_path, "--values", EXAMPLE)
    assert "vLLM serves Qwen/Qwen3-8B on port 8000" in text
    assert "dns:///" not in text


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("pool.replicas=0", "replicas"),
        ("pool.memory=lots", "memory"),
        ("sidecar.budgetbytes=1", "budgetbytes"),
        ("pool.environment.PATH=a", "PATH"),
        ("vllm.enabled=true", "vllm.model"),
        ("image.registry=https://registry.example.com", "registry"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("pool.cpuLimit=lots", "cpuLimit"),
        ("pool.autoscaling.cpu=0", "cpu"),
        ("pool.tls.secret=", "secret"),
        ("pool.disruptionBudget.maxUnavailable=-1", "maxUnavailable"),
    ],
)
def test_wrong_values(helm: Path, chosen: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        made(helm, "a", "--set", chosen)


def test_commands_of_the_documents(helm: Path) -> None:
    """With `template` instead of `install`."""
    for line in claimed("helm"):
        command = line.partition("#")[0].replace("install", "template", 1).split()
        assert list(yaml.load_all(output(helm, *command[1:], *VERSION), Loader))
