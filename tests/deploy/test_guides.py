# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the guides in docs/guides show that needs a server of its own, or a manifest."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from documents import REPOSITORY, claimed, claimed_blocks, run_line, text_of

from kvcompress.v1 import compression_service_pb2
from oracle.fixtures import SAMPLE
from oracle.server import running_server

SERVICE = compression_service_pb2.DESCRIPTOR.services_by_name["CompressionService"]


def test_every_call_has_an_example_for_grpcurl() -> None:
    """In the guide, whose commands are run."""
    shown = set(re.findall(r"CompressionService/(\w+)", text_of("docs/guides/grpcurl.md")))
    assert shown == set(SERVICE.methods_by_name)


def test_grpcurl_with_files(bin_dir: Path, tmp_path: Path) -> None:
    """Streams of a file, and calls that name files, in the order of the guide."""
    grpcurl = os.environ.get("KVCOMPRESS_GRPCURL") or shutil.which("grpcurl")
    if not grpcurl:
        pytest.skip("no grpcurl: KVCOMPRESS_GRPCURL names none, and none is on the PATH")
    shutil.copy(SAMPLE, tmp_path / "cache.safetensors")
    socket = tmp_path / "kv.sock"
    flags = ["--listen", f"unix:{socket}", "--shared-directory", str(tmp_path)]
    with running_server(bin_dir, *flags) as server:
        for line in claimed("grpcurl, with files"):
            command = line.replace("grpcurl -", f"{grpcurl} -")
            command = command.replace("127.0.0.1:50051", server.target)
            output = run_line(command.replace("/run/kvcompress/kv.sock", str(socket)), tmp_path)
            report = json.loads("{" + output.rpartition("\n{")[2] if "\n{" in output else output)
            assert {"trailer", "report"} & set(report), line
    assert (tmp_path / "restored.safetensors").stat().st_size == SAMPLE.stat().st_size


def test_vllm() -> None:
    """The guide configures vLLM as the example for Kubernetes does, but for the server.

    Both are fast: the engine's own server, or a sidecar that shares a directory in memory.
    """
    [block] = claimed_blocks("vllm")
    *command, configuration = shlex.split(block)
    timeout = "--shutdown-timeout"
    assert command == ["vllm", "serve", "MODEL", timeout, "30", "--kv-transfer-config"]
    guide = json.loads(configuration)
    example = REPOSITORY / "deploy/kubernetes/examples/vllm"
    spec = yaml.safe_load((example / "vllm.yaml").read_text())["spec"]["template"]["spec"]
    [given] = [text for text in spec["containers"][0]["args"] if "--kv-transfer-config=" in text]
    assert f"{timeout}=30" in spec["containers"][0]["args"]
    assert spec["terminationGracePeriodSeconds"] > 30
    manifest = json.loads(given.partition("=")[2])
    assert manifest["kv_connector_extra_config"].pop("server").startswith("unix:")
    assert manifest == guide

    patch = yaml.safe_load((example / "sidecar.yaml").read_text())["spec"]["template"]["spec"]
    [sidecar], [engine] = patch["initContainers"], patch["containers"]
    shared = {each["name"]: each.get("value") for each in sidecar["env"]}
    shared_at = shared["KVCOMPRESS_SHARED_DIRECTORY"]
    for container in (sidecar, engine):
        [volume] = [each for each in container["volumeMounts"] if each["mountPath"] == shared_at]
        [found] = [each for each in patch["volumes"] if each["name"] == volume["name"]]
        assert found["emptyDir"]["medium"] == "Memory"


def test_vllm_in_short() -> None:
    """The line of the README is the guide's, for vLLM that knows the connector by its name."""
    [short], [block] = claimed_blocks("vllm, in short"), claimed_blocks("vllm")
    *command, configuration = shlex.split(short)
    *wanted, guide = shlex.split(block)
    assert command == wanted
    whole = json.loads(guide)
    del whole["kv_connector_module_path"]
    assert json.loads(configuration) == whole


def test_versions_of_engines() -> None:
    """Those that the guides say are tested are those that the tests install."""
    installed: dict[str, str] = {}
    for file in ("tests/engines", "tests/integrations", "validation"):
        text = (REPOSITORY / file / "requirements.txt").read_text()
        installed |= dict(re.findall(r"(?m)^([\w-]+)==(\S+)$", text))
    text = (REPOSITORY / "tests/tools/llama-cpp-requirements.txt").read_text()
    installed |= dict(re.findall(r"(?m)^([\w-]+)==(\S+)$", text))
    rows = re.findall(
        r"(?m)^\| \[.*\]\(\S+\) \| `([\w-]+)` (\S+) \|", text_of("docs/guides/README.md")
    )
    assert len(rows) == 5
    for package, version in rows:
        assert installed[package] == version, package
