# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The Helm chart: linted, and the same objects as kustomize makes, which the other tests check."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import claimed
from manifests import Loader, Manifest, of_kind, render, the
from tools import REPOSITORY, Tool, output

CHART = REPOSITORY / "deploy" / "helm" / "kv-compress"
EXAMPLE = CHART / "examples" / "vllm.yaml"
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


@pytest.mark.parametrize("values", [(), ("--values", EXAMPLE)])
def test_lint(helm: Path, values: tuple[object, ...]) -> None:
    output(helm, "lint", "--strict", *VERSION, CHART, *values)


@pytest.mark.parametrize(
    ("folder", "namespace", "values"),
    [("base", "kvcompress", ()), ("examples/vllm", "inference", ("--values", EXAMPLE))],
)
def test_objects_are_those_of_kustomize(
    helm: Path, tool: Tool, folder: str, namespace: str, values: tuple[object, ...]
) -> None:
    """Which are validated by schemas, by kube-score and by an API server."""
    wanted = render(tool("kubernetes"), folder)
    assert the(wanted, "Namespace")["metadata"]["name"] == namespace
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


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("pool.replicas=0", "replicas"),
        ("pool.memory=lots", "memory"),
        ("sidecar.budgetbytes=1", "budgetbytes"),
        ("pool.environment.PATH=a", "PATH"),
        ("vllm.enabled=true", "vllm.model"),
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
