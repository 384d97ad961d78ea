# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the guides in docs/guides show that needs a server of its own, or a manifest."""

import json
import os
import re
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
    """The guide configures vLLM as the example for Kubernetes does."""
    [block] = claimed_blocks("vllm")
    manifest = REPOSITORY / "deploy/kubernetes/examples/vllm/vllm.yaml"
    [container] = yaml.safe_load(manifest.read_text())["spec"]["template"]["spec"]["containers"]
    [given] = [text for text in container["args"] if text.startswith("--kv-transfer-config=")]
    assert json.loads(given.partition("=")[2]) == json.loads(block)
