# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The names in deploy/names.sh are those that all else has, and nothing is installed unasked."""

import os
import pty
import re
import subprocess
import tomllib

import yaml
from documents import DOCUMENTS, REPOSITORY, text_of

NAMES = dict(re.findall(r"(?m)^(\w+)=(\S+)$", text_of("deploy/names.sh")))
IMAGE = NAMES["image_name"].rpartition("/")[2]
# Asks for two packages, of which one is missing.
ASK = """
source deploy/common.sh
missing_packages() { printf 'podman\\n'; }
if may_install "the image" podman runc; then echo yes; else echo no; fi
"""


def test_the_package() -> None:
    """As pip installs it: in the project's file, and with extras in documents."""
    project = tomllib.loads(text_of("client/python/pyproject.toml"))["project"]
    assert project["name"] == NAMES["package_name"]
    extras = {name for each in DOCUMENTS for name in re.findall(r"'(\w+)\[\w+\]'", text_of(each))}
    assert extras == {NAMES["package_name"]}


def test_the_image() -> None:
    """In the chart, in Compose, in kustomize, and in the command that builds it."""
    values = yaml.safe_load(text_of("deploy/helm/kv-compress/values.yaml"))
    assert values["image"]["repository"] == IMAGE
    services = yaml.safe_load(text_of("deploy/compose/compose.yaml"))["services"]
    assert services["server"]["image"].partition(":")[0] == IMAGE
    base = yaml.safe_load(text_of("deploy/kubernetes/base/kustomization.yaml"))
    assert [each["name"] for each in base["images"]] == [IMAGE]
    assert f"--tag {IMAGE}:" in building()
    assert f"image `{IMAGE}:" in text_of("deploy/README.md")


def building() -> str:
    """The command of the documents that builds it."""
    [line] = re.findall(r"(?m)^ {4}podman build [^\n]+\\\n[^\n]+$", text_of("deploy/README.md"))
    return str(line)


def ask(stdin: int) -> "subprocess.CompletedProcess[str]":
    """Runs the question."""
    command = ["bash", "-c", ASK]
    return subprocess.run(
        command, cwd=REPOSITORY, stdin=stdin, capture_output=True, text=True, timeout=60
    )


def answered(answer: str) -> str:
    """What comes of it where somebody types an answer."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        ["bash", "-c", ASK],
        cwd=REPOSITORY,
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=60,
    )
    os.close(theirs)
    os.close(ours)
    assert "the image needs Debian packages that are not installed: podman" in done.stderr
    assert "Install them? [y/N]" in done.stderr
    return done.stdout.strip()


def test_packages_are_installed_when_somebody_says_yes() -> None:
    """Nothing typed is no."""
    assert [answered(each) for each in ("y", "Yes", "n", "")] == ["yes", "yes", "no", "no"]


def test_without_a_terminal_nobody_is_asked() -> None:
    """What is installed is said all the same."""
    done = subprocess.run(
        ["bash", "-c", ASK],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "yes\n"
    assert done.stderr == "the image needs Debian packages that are not installed: podman\n"
