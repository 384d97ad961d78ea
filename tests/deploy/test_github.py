# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Files for code hosts and editors: they parse, and repeat nothing that has changed elsewhere."""

import configparser
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import WAYS, commands
from test_repository import REPOSITORY, tracked

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").iterdir())
PRE_COMMIT = REPOSITORY / ".pre-commit-config.yaml"


def jobs(workflow: Path) -> dict[str, dict[str, Any]]:
    """By name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(workflow.read_text())["jobs"]
    return found


def steps(workflow: Path) -> list[dict[str, Any]]:
    """Of all jobs."""
    return [step for job in jobs(workflow).values() for step in job["steps"]]


def test_yaml_parses() -> None:
    """Each document of each file."""
    files = [path for path in tracked() if ".github" in path.parts and path.suffix != ".md"]
    files = [path for path in files if path.name != "CODEOWNERS"]
    assert len(files) > 3
    for path in [*files, PRE_COMMIT, REPOSITORY / ".clangd"]:
        assert all(yaml.safe_load_all(path.read_text())), path


def test_workflow_runs_the_commands_of_the_readme() -> None:
    """Both, as they stand there, and in that order."""
    wanted = [
        line
        for line in dict.fromkeys(commands("README.md"))
        if re.fullmatch(f"{WAYS['quickstart']}|tests/run", line)
    ]
    assert wanted == ["deploy/quickstart", "tests/run"]
    readme = jobs(WORKFLOWS[0])["readme"]
    run = [step["run"] for step in readme["steps"] if "run" in step]
    assert [command for command in run if not command.startswith("apt-get ")] == wanted


def test_jobs_are_the_parts_of_all_tests() -> None:
    """Each part that tests/run knows, in one job."""
    names = re.search(
        r"^every_part=\((.*)\)$", (REPOSITORY / "tests/run").read_text(), re.MULTILINE
    )
    assert names
    parts = jobs(WORKFLOWS[0])["parts"]["strategy"]["matrix"]["parts"]
    assert ",".join(parts) == names[1].replace(" ", ",")


def test_nightly_runs_commands_that_are_there() -> None:
    """Each begins with a program of this repository."""
    matrix = jobs(WORKFLOWS[1])["nightly"]["strategy"]["matrix"]
    for command in matrix["command"]:
        assert os.access(REPOSITORY / command.split()[0], os.X_OK), command


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(workflow: Path) -> None:
    """By their whole version."""
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w/-]+@v\d+\.\d+\.\d+", name)] == []


def test_owners_are_of_files_that_are_there() -> None:
    """CODEOWNERS names no path that has moved."""
    for line in (REPOSITORY / ".github" / "CODEOWNERS").read_text().splitlines():
        path, *owners = line.split()
        if path == "#":
            continue
        assert owners, line
        assert path == "*" or (REPOSITORY / path.strip("/")).exists(), line


def test_pre_commit_has_the_versions_of_the_tests() -> None:
    """Of every hook that is a package; buf's is that of tests/tools/buf."""
    pinned = set()
    for file in ("tests/requirements.txt", "client/python/requirements-dev.txt"):
        pinned.update((REPOSITORY / file).read_text().splitlines())
    [repository] = yaml.safe_load(PRE_COMMIT.read_text())["repos"]
    packages = {}
    for hook in repository["hooks"]:
        packages[hook["id"]] = hook.get("additional_dependencies", [])
        assert set(packages[hook["id"]]) <= pinned, hook
    assert [name for name, wanted in packages.items() if not wanted] == ["buf-lint"]
    assert "tests/tools/buf" in repository["hooks"][-1]["entry"]
    assert set(packages) == {
        *("clang-format", "ruff-check", "ruff-format", "shellcheck", "shfmt", "buf-lint")
    }


def test_editors_wrap_where_ruff_does() -> None:
    """One width for Python."""
    parser = configparser.ConfigParser()
    parser.read_string("[top]\n" + (REPOSITORY / ".editorconfig").read_text())
    project = tomllib.loads((REPOSITORY / "client/python/pyproject.toml").read_text())
    width = project["tool"]["ruff"]["line-length"]
    assert parser["*.{py,pyi}"]["max_line_length"] == str(width)
