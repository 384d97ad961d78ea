# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What kustomize makes of deploy/kubernetes."""

from pathlib import Path
from typing import Any

import yaml
from documents import claimed
from tools import REPOSITORY, output

APPLY = "kubectl apply -k deploy/kubernetes/"
KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
# What users apply, by the commands of the documents, and what it is made on. The rest are
# components of these.
APPLIED = ("base", *(line.removeprefix(APPLY) for line in claimed("kubectl")))

# The custom resources that are used, as the files of their definitions end.
CUSTOM = ("certificates", "issuers", "podmonitors", "prometheusrules", "servicemonitors")

Manifest = dict[str, Any]


class Loader(yaml.CSafeLoader):
    """YAML 1.2 as far as it matters: `=` is a string."""


Loader.yaml_implicit_resolvers = {
    first: resolvers
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    if first != "="
}


def render(tools: Path, folder: str) -> list[Manifest]:
    """The objects of a folder of deploy/kubernetes."""
    text = output(tools / "kustomize", "build", KUBERNETES / folder)
    return list(yaml.load_all(text, Loader))


def custom_resources(tools: Path) -> list[Manifest]:
    """The definitions of cert-manager and of the Prometheus operator.

    Without their labels: those of cert-manager are templates of its chart.
    """
    definitions = []
    for path in sorted((tools / "crds").glob("*.yaml")):
        if not path.stem.endswith(CUSTOM):
            continue
        for definition in yaml.load_all(path.read_text(), Loader):
            definition["metadata"] = {"name": definition["metadata"]["name"]}
            definitions.append(definition)
    return definitions


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """The objects of one kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def the(manifests: list[Manifest], kind: str) -> Manifest:
    """The only object of a kind."""
    [manifest] = of_kind(manifests, kind)
    return manifest
