# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The container image: what it declares, and that it serves under tight limits."""

import json
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from containers import IMAGE, Podman
from tools import REPOSITORY, Fact, free_port

SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
# A bound that only an accident breaks, such as a build tool that is left in.
MOST_MEGABYTES = 200
# As Python reads it, to the microsecond.
STARTED = '{{.State.StartedAt.UTC.Format "2006-01-02T15:04:05.000000+00:00"}}'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def config(podman: Podman) -> dict[str, Any]:
    """What the image declares."""
    image: dict[str, Any] = json.loads(podman("image", "inspect", IMAGE))[0]
    config: dict[str, Any] = image["Config"]
    return config


def test_user_is_a_number_and_not_root(config: dict[str, Any]) -> None:
    """So that runAsNonRoot can be checked before anything runs."""
    user, group = map(int, config["User"].split(":"))
    assert user > 0
    assert group > 0


def test_listens_for_other_machines(config: dict[str, Any]) -> None:
    """A container that listens on its own loopback serves nobody."""
    assert config["Entrypoint"] == ["/usr/bin/kv-compressd"]
    assert "KVCOMPRESS_LISTEN=0.0.0.0:50051" in config["Env"]
    assert set(config["ExposedPorts"]) == {"50051/tcp", "9464/tcp"}


def test_labels(config: dict[str, Any]) -> None:
    """Those of the image specification that are known without a registry."""
    names = ["title", "description", "licenses", "version", "revision", "created", "base.name"]
    for name in names:
        assert config["Labels"][f"org.opencontainers.image.{name}"]


def test_libraries_are_all_there(podman: Podman) -> None:
    """Of both binaries."""
    for binary in ("kv-compressd", "kv-compress"):
        answer = podman(
            "run", "--rm", "--network", "none", "--entrypoint", binary, IMAGE, "--version"
        )
        assert answer.startswith(f"{binary} ")


def test_holds_no_tools_of_the_build(podman: Podman) -> None:
    """Only what runs."""
    script = "command -v g++ cmake ninja protoc python3 git || true; ls /src 2>&1 || true"
    answer = podman("run", "--rm", "--network", "none", "--entrypoint", "sh", IMAGE, "-c", script)
    assert answer.splitlines() == ["ls: cannot access '/src': No such file or directory"]


def test_bill_of_materials(podman: Podman, fact: Fact) -> None:
    """SPDX: every package that is installed in the image, and what was compiled in."""
    run = ["run", "--rm", "--network", "none", "--entrypoint"]
    installed = podman(*run, "dpkg-query", IMAGE, "-W", "-f", "${Package} ${Version}\n")
    document = json.loads(podman(*run, "cat", IMAGE, "/usr/share/doc/kvcompress/sbom.spdx.json"))
    assert document["spdxVersion"] == "SPDX-2.3"
    packages = {package["SPDXID"]: package for package in document["packages"]}
    assert len(packages) == len(document["packages"])
    related: dict[str, set[str]] = {"CONTAINS": set(), "DESCRIBES": set(), "STATIC_LINK": set()}
    for relation in document["relationships"]:
        package = packages[relation["relatedSpdxElement"]]
        related[relation["relationshipType"]].add(f"{package['name']} {package['versionInfo']}")
    assert related["CONTAINS"] == set(installed.splitlines())
    static = {name.partition(" ")[0] for name in related["STATIC_LINK"]}
    assert static == {"libcli11-dev", "nlohmann-json3-dev"}
    fact(f"bill of materials: {len(packages)} packages")


def test_size(podman: Podman, fact: Fact) -> None:
    """How much the image adds to its base."""
    sizes = {
        name: json.loads(podman("image", "inspect", name))[0]["Size"] / 1e6
        for name in (IMAGE, "docker.io/library/debian:12-slim")
    }
    added = sizes[IMAGE] - sizes["docker.io/library/debian:12-slim"]
    fact(f"image: {sizes[IMAGE]:.0f} MB, {added:.0f} MB of it on top of the base")
    assert 0 < added < MOST_MEGABYTES


def test_serves_under_tight_limits(podman: Podman, bin_dir: Path, fact: Fact) -> None:
    """Read-only, without capabilities, in 256 MiB; it stops in order on SIGTERM."""
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    container = podman(
        *("run", "--detach", "--network", "host", "--read-only", "--cap-drop", "all"),
        *("--security-opt", "no-new-privileges", "--memory", "256m"),
        *("--env", f"KVCOMPRESS_LISTEN={address}"),
        *("--env", f"KVCOMPRESS_METRICS_LISTEN={metrics}", IMAGE),
    ).split()[-1]
    deadline = time.monotonic() + 30
    while "SERVING" not in podman("logs", container):
        assert time.monotonic() < deadline, podman("logs", container)
        time.sleep(0.1)
    started = datetime.fromisoformat(podman("inspect", "--format", STARTED, container).strip())
    line = next(each for each in podman("logs", container).splitlines() if "SERVING" in each)
    seconds = (datetime.fromisoformat(line.split()[0]) - started).total_seconds()
    assert podman("exec", container, "kv-compressd", "--probe") == "SERVING\n"
    podman("healthcheck", "run", container)
    command = [str(bin_dir / "kv-compress"), "-server", address, "-input", str(SAMPLE)]
    done = subprocess.run([*command, "-metrics-only"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["original_size_bytes"] == 2_211_840
    peak = podman("exec", container, "grep", "VmHWM", "/proc/1/status").split()[1]
    fact(f"serving {seconds:.2f} s after its start; resident {int(peak) / 1000:.0f} MB at most")
    podman("stop", "--time", "30", container)
    state = json.loads(podman("inspect", container))[0]["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
