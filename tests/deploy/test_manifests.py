# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The manifests of Kubernetes: rendered, linted, and consistent with the server."""

import json
import os
from importlib import resources
from pathlib import Path

import pytest
import yaml
from manifests import APPLIED, KUBERNETES, Manifest, custom_resources, of_kind, render, the
from server_process import run
from tools import REPOSITORY, Fact, Tool, output

from kvcompress.store._quantities import parse_bytes

# The oldest where native sidecars are on unless turned off, and the newest with schemas.
KUBERNETES_VERSIONS = ("1.29", "1.34", "1.37")
FOLDERS = ("PROFILE", "SHARED")
DRAFT = "http://json-schema.org/draft-07/schema#"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def tools(tool: Tool) -> Path:
    """Folder of kustomize, kubeconform and kube-score."""
    return tool("kubernetes")


@pytest.fixture(scope="module")
def rendered(tools: Path) -> dict[str, list[Manifest]]:
    """The objects of each folder that users apply."""
    return {folder: render(tools, folder) for folder in APPLIED}


def schema_name(kind: str, api_version: str) -> str:
    """As kubeconform looks for it."""
    group, _, version = api_version.rpartition("/")
    return "-".join(filter(None, [kind.lower(), group.partition(".")[0], version])) + ".json"


def strict(schema: object) -> object:
    """The schema of a custom resource, with no field allowed that it does not have."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if "properties" in closed and not closed.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    if closed.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    return closed


def write_schemas(folder: Path, version: str, definitions: list[Manifest]) -> None:
    """Writes the schemas of a version of Kubernetes, and of custom resources."""
    source = resources.files("kubernetes_validate") / "kubernetes-json-schema"
    folder.mkdir()
    for path in Path(str(source / f"v{version}.0-local-strict")).glob("*.json"):
        schema = json.loads(
            path.read_text().replace("/api/_definitions.json#", "_definitions.json#")
        )
        schema.pop("$id", None)
        (folder / path.name).write_text(json.dumps({**schema, "$schema": DRAFT}))
    for definition in definitions:
        spec = definition["spec"]
        for served in spec["versions"]:
            name = schema_name(spec["names"]["kind"], f"{spec['group']}/{served['name']}")
            schema = strict(served["schema"]["openAPIV3Schema"])
            assert isinstance(schema, dict)
            schema["properties"]["metadata"] = {"type": "object"}
            (folder / name).write_text(json.dumps({**schema, "$schema": DRAFT}))


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_schemas(
    version: str,
    tools: Path,
    rendered: dict[str, list[Manifest]],
    tmp_path: Path,
    fact: Fact,
) -> None:
    """Every object has every field where its schema has it, and none besides."""
    write_schemas(tmp_path / "schemas", version, custom_resources(tools))
    objects = [manifest for manifests in rendered.values() for manifest in manifests]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    location = f"{tmp_path}/schemas/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [tools / "kubeconform", "-strict", "-output", "json", "-summary"]
    answer = json.loads(output(*command, "-schema-location", location, file))
    assert answer["summary"] == {
        **{"valid": len(objects), "invalid": 0, "errors": 0, "skipped": 0}
    }, answer
    fact(f"kubeconform: {len(objects)} objects are valid for Kubernetes {version}")


def test_schemas_find_a_misspelt_field(tools: Path, tmp_path: Path) -> None:
    """Of Kubernetes and of a custom resource."""
    write_schemas(tmp_path / "schemas", "1.34", custom_resources(tools))
    location = f"{tmp_path}/schemas/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    for text in (
        "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIp: None}}",
        "{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: a},"
        " spec: {selector: {}, endpoint: [{port: a}]}}",
    ):
        file = tmp_path / "wrong.yaml"
        file.write_text(text)
        with pytest.raises(AssertionError, match=r"clusterIp|endpoint"):
            output(tools / "kubeconform", "-strict", "-schema-location", location, file)


def test_good_practice(
    tools: Path, rendered: dict[str, list[Manifest]], tmp_path: Path, fact: Fact
) -> None:
    """What kube-score asks of the pool. A limit of CPU it does not: that would throttle."""
    for folder in ("base", "overlays/production"):
        file = tmp_path / "pool.yaml"
        file.write_text(yaml.safe_dump_all(rendered[folder]))
        command = [tools / "kube-score", "score", "--ignore-container-cpu-limit"]
        output(*command, "--output-format", "ci", file)
    fact("kube-score: nothing to remark on the pool. kube-linter is not on the Go module proxy")


def containers(manifest: Manifest) -> dict[str, Manifest]:
    """The containers of a Deployment by name, sidecars too."""
    pod = manifest["spec"]["template"]["spec"]
    return {each["name"]: each for each in pod.get("initContainers", []) + pod["containers"]}


def test_configuration_is_valid(
    rendered: dict[str, list[Manifest]], bin_dir: Path, tmp_path: Path
) -> None:
    """The server takes the variables of each container; only files of TLS are not there yet."""
    for folder, manifests in rendered.items():
        [server] = [
            container
            for deployment in of_kind(manifests, "Deployment")
            for name, container in containers(deployment).items()
            if name == "kv-compressd"
        ]
        variables = {variable["name"]: variable["value"] for variable in server["env"]}
        mounted = {mount["mountPath"] for mount in server.get("volumeMounts", [])}
        for name in variables.keys() & {f"KVCOMPRESS_{kind}_DIRECTORY" for kind in FOLDERS}:
            assert variables[name] in mounted
            variables[name] = str(tmp_path)
        done = run("--check-config", **variables)
        if "KVCOMPRESS_TLS_CERT" in variables:
            assert "/etc/kvcompress/tls/" in done.stderr
            [mount] = server["volumeMounts"]
            assert variables["KVCOMPRESS_TLS_CERT"].startswith(mount["mountPath"])
        else:
            assert done.returncode == 0, (folder, done.stderr)
        ports = {port["name"]: port["containerPort"] for port in server["ports"]}
        metrics = int(variables["KVCOMPRESS_METRICS_LISTEN"].rpartition(":")[2])
        assert metrics in ports.values()


@pytest.mark.parametrize("folder", ["base", "overlays/production"])
def test_everything_selects_the_pods(rendered: dict[str, list[Manifest]], folder: str) -> None:
    """Service, disruption budget, network policy and monitor mean the pods that there are."""
    manifests = rendered[folder]
    labels = the(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        the(manifests, "Service")["spec"]["selector"],
        the(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        the(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        the(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    for monitor in of_kind(manifests, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= the(manifests, "Service")["metadata"]["labels"].items()
        ports = {port["name"] for port in the(manifests, "Service")["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports
        # The rules and the dashboard read job="kvcompress".
        assert wanted[monitor["spec"]["jobLabel"]] == "kvcompress"


def test_pods_have_time_to_drain(rendered: dict[str, list[Manifest]]) -> None:
    """The delay, the grace and 5 seconds."""
    for folder in ("base", "overlays/production"):
        deployment = the(rendered[folder], "Deployment")
        variables = {v["name"]: v["value"] for v in containers(deployment)["kv-compressd"]["env"]}
        needed = 5 + sum(
            int(variables[f"KVCOMPRESS_{name}_SECONDS"])
            for name in ("DRAIN_DELAY", "SHUTDOWN_GRACE")
        )
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= needed


def test_production(rendered: dict[str, list[Manifest]]) -> None:
    """Mutual TLS, no fixed number of pods, and the dashboard as it is in the repository."""
    manifests = rendered["overlays/production"]
    deployment = the(manifests, "Deployment")
    assert "replicas" not in deployment["spec"]
    server = containers(deployment)["kv-compressd"]
    assert {"name": "KVCOMPRESS_INSECURE", "value": "false"} in server["env"]
    # The kubelet's gRPC probes speak no TLS.
    assert "grpc" not in server["readinessProbe"]
    secret = deployment["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"]
    certificates = {c["spec"]["secretName"]: c["spec"] for c in of_kind(manifests, "Certificate")}
    assert "kvcompress.kvcompress.svc.cluster.local" in certificates[secret]["dnsNames"]
    dashboard = the(manifests, "ConfigMap")["data"]["kvcompress.json"]
    assert dashboard == (REPOSITORY / "deploy" / "grafana" / "kvcompress.json").read_text()


def test_autoscaler_knows_the_budget(rendered: dict[str, list[Manifest]]) -> None:
    """Its target is half of what a server makes of the memory limit."""
    manifests = rendered["overlays/production"]
    server = containers(the(manifests, "Deployment"))["kv-compressd"]
    limit = int(server["resources"]["limits"]["memory"].removesuffix("Gi")) * 1024
    metric = the(manifests, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]
    assert metric["target"]["averageValue"] == f"{(limit - 64) // 2 // 2}Mi"
    rules = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "adapter.yaml").read_text())
    assert rules["rules"][0]["seriesQuery"].startswith(metric["metric"]["name"])


def size_of_files(pod: Manifest) -> int:
    """MiB of the directory in memory that an engine shares with its sidecar."""
    [volume] = [each for each in pod["volumes"] if each["name"] == "kvcompress-files"]
    return int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) * 1024


def test_budgets_take_128k_tokens(rendered: dict[str, list[Manifest]]) -> None:
    """Of an 8B model, under `klt` and `auto`: 4 MiB and four times a tensor of 256 MiB."""
    pool = the(rendered["overlays/production"], "Deployment")
    sidecar = the(rendered["examples/vllm"], "Deployment")["spec"]["template"]["spec"]
    for server in (containers(pool)["kv-compressd"], sidecar["initContainers"][0]):
        limit = int(server["resources"]["limits"]["memory"].removesuffix("Gi")) * 1024
        budget = (limit - 64) // 2
        variables = {variable["name"]: variable["value"] for variable in server["env"]}
        if "KVCOMPRESS_MEMORY_BUDGET_BYTES" in variables:
            budget = int(variables["KVCOMPRESS_MEMORY_BUDGET_BYTES"]) >> 20
            profiles = int(variables["KVCOMPRESS_MAX_PROFILE_BYTES"]) >> 20
            assert 2 * budget + 64 + profiles + size_of_files(sidecar) <= limit
        assert budget >= 4 + 4 * 256


def test_profiles(tools: Path, bin_dir: Path, tmp_path: Path) -> None:
    """The component on top of the base: a volume that the server reads, where its flag says."""
    base, component = (
        os.path.relpath(KUBERNETES / folder, tmp_path) for folder in ("base", "components/profiles")
    )
    overlay = {"resources": [base], "components": [component], "namespace": "kvcompress"}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    manifests = list(yaml.safe_load_all(output(tools / "kustomize", "build", tmp_path)))
    deployment = the(manifests, "Deployment")
    server = containers(deployment)["kv-compressd"]
    variables = {variable["name"]: variable["value"] for variable in server["env"]}
    [mount] = server["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == (
        variables["KVCOMPRESS_PROFILE_DIRECTORY"],
        True,
    )
    [volume] = deployment["spec"]["template"]["spec"]["volumes"]
    claim = the(manifests, "PersistentVolumeClaim")["metadata"]["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim
    variables["KVCOMPRESS_PROFILE_DIRECTORY"] = str(tmp_path)
    assert run("--check-config", **variables).returncode == 0


def test_sidecar(rendered: dict[str, list[Manifest]]) -> None:
    """Starts before the engine, stops after it, and shares two folders in memory with it."""
    manifests = rendered["examples/vllm"]
    deployment = the(manifests, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    [sidecar] = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    engine = containers(deployment)["vllm"]["volumeMounts"]
    shared = {each["mountPath"]: each for each in sidecar["volumeMounts"] if each in engine}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in shared.values():
        assert volumes[mount["name"]]["emptyDir"]["medium"] == "Memory"
    variables = {variable["name"]: variable["value"] for variable in sidecar["env"]}
    address = variables["KVCOMPRESS_LISTEN"]
    folder, files = "/run/kvcompress", variables["KVCOMPRESS_SHARED_DIRECTORY"]
    assert set(shared) == {folder, files}
    assert address.startswith(f"unix:{folder}/")
    [profiles] = [each for each in sidecar["volumeMounts"] if each not in engine]
    assert profiles["mountPath"] == variables["KVCOMPRESS_PROFILE_DIRECTORY"]
    assert profiles["readOnly"]
    assert "persistentVolumeClaim" in volumes[profiles["name"]]
    flag = "--kv-transfer-config="
    [given] = [each for each in containers(deployment)["vllm"]["args"] if each.startswith(flag)]
    transfer = json.loads(given.removeprefix(flag))
    assert transfer["kv_connector_extra_config"]["server"] == address
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    monitor = the(manifests, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    ports = {
        "kvcompress": {each["name"] for each in sidecar["ports"]},
        "vllm": {each["name"] for each in containers(deployment)["vllm"]["ports"]},
    }
    for endpoint in monitor["podMetricsEndpoints"]:
        [label] = endpoint["relabelings"]
        assert endpoint["port"] in ports.pop(label["replacement"])
    assert not ports
    extra = transfer["kv_connector_extra_config"]
    volume = volumes["cache"]["emptyDir"]["sizeLimit"]
    assert parse_bytes(extra["capacity_bytes"]) <= 0.9 * parse_bytes(volume)
