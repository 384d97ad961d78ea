# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""compose.yaml: valid, of files and addresses that are there, for this machine alone."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import REPOSITORY, Tool, output, program

FOLDER = REPOSITORY / "deploy" / "compose"
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def mounts(service: str) -> dict[str, Path]:
    """Files of the repository, by where the service has them."""
    found = {}
    for volume in SERVICES[service]["volumes"]:
        source, target, *options = volume.split(":")
        if source.startswith("."):
            assert options == ["ro"], volume
            found[target] = FOLDER / source
    return found


@pytest.mark.slow
def test_schema() -> None:
    """That of the Compose specification."""
    file = FOLDER / "compose.yaml"
    requirements = REPOSITORY / "tests" / "deploy" / "compose-requirements.txt"
    venv = output(REPOSITORY / "deploy" / "python-env", requirements).strip()
    output(f"{venv}/bin/check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)


def test_files_are_there_and_images_have_versions() -> None:
    """Nothing is mounted that does not exist, which docker would make a folder for."""
    for name, service in SERVICES.items():
        assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", service["image"]), name
        for path in mounts(name).values() if "volumes" in service else []:
            assert path.is_file(), path
    assert (FOLDER / SERVICES["server"]["build"] / "Dockerfile").is_file()


def test_reached_from_this_machine_alone() -> None:
    """Plain text and a Grafana without a login are for nobody else."""
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_prometheus(tool: Tool, tmp_path: Path) -> None:
    """Promtool accepts the configuration where it is mounted; it scrapes the server."""
    for target, path in mounts("prometheus").items():
        shutil.copyfile(path, tmp_path / Path(target).name)
    command = SERVICES["prometheus"]["command"]
    [configuration] = [word.partition("=")[2] for word in command if "config.file" in word]
    assert configuration in mounts("prometheus")
    file = tmp_path / Path(configuration).name
    output(program("promtool", "prometheus", tool), "check", "config", file)
    read = yaml.safe_load(file.read_text())
    [job] = read["scrape_configs"]
    [address] = job["static_configs"][0]["targets"]
    host, port = address.split(":")
    assert host in SERVICES
    assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]
    assert f"EXPOSE 50051 {port}" in (REPOSITORY / "Dockerfile").read_text()
    # As where there is a Prometheus already, but for where the server and Alertmanager are.
    usual = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yaml").read_text())
    del usual["alerting"]
    usual["scrape_configs"][0]["static_configs"] = job["static_configs"]
    assert read == usual


def test_grafana() -> None:
    """It is given the dashboard, and a source of data that is the Prometheus next to it."""
    grafana = mounts("grafana")
    provisioning = "/etc/grafana/provisioning"
    read = {path: yaml.safe_load(file.read_text()) for path, file in grafana.items()}
    [provider] = read[f"{provisioning}/dashboards/kvcompress.yaml"]["providers"]
    [dashboard] = [path for path in grafana if path.endswith(".json")]
    assert Path(dashboard).parent == Path(provider["options"]["path"])
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == dashboard
    [source] = read[f"{provisioning}/datasources/kvcompress.yaml"]["datasources"]
    variables = {each["name"]: each for each in read[dashboard]["templating"]["list"]}
    assert source["type"] == variables["datasource"]["query"]
    assert source["isDefault"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]
