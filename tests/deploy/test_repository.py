# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Rules that hold for every file of the repository."""

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NOTICE = "Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0"
SOURCES = {".cc", ".h", ".proto", ".py", ".pyi"}


def tracked() -> list[Path]:
    """The files that git knows and that are there."""
    command = ["git", "-c", f"safe.directory={REPOSITORY}", "ls-files", "-z"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [REPOSITORY / name for name in done.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def is_script(path: Path) -> bool:
    """Whether the file is a program by its first line."""
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def names(paths: list[Path]) -> list[str]:
    """Paths as one reads them."""
    return sorted(str(path.relative_to(REPOSITORY)) for path in paths)


def test_sources_carry_the_notice() -> None:
    """In the first lines of all that is compiled or run."""
    sources = [p for p in tracked() if p.suffix in SOURCES or is_script(p)]
    assert len(sources) > 50
    missing = [p for p in sources if NOTICE not in "".join(p.open().readlines()[:3])]
    assert names(missing) == []


def test_nothing_is_left_for_later() -> None:
    """No notes to oneself."""
    sources = [p for p in tracked() if p.suffix in SOURCES or is_script(p)]
    note = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b[:(]")
    assert names([path for path in sources if note.search(path.read_text())]) == []


def test_scripts_are_executable_and_strict() -> None:
    """Shell scripts stop at the first error."""
    scripts = [path for path in tracked() if is_script(path)]
    assert names([path for path in scripts if not path.stat().st_mode & 0o100]) == []
    shell = [path for path in scripts if path.read_text().startswith("#!/usr/bin/env bash")]
    assert names([path for path in shell if "\nset -euo pipefail\n" not in path.read_text()]) == []


def test_requirements_are_exact() -> None:
    """What is installed today is what was tested."""
    exact = re.compile(r"#.*|-r \S+|[A-Za-z0-9_.-]+==([0-9]+!)?[0-9.]+(post[0-9]+)?")
    for path in [path for path in tracked() if re.fullmatch(r"requirements.*\.txt", path.name)]:
        for line in path.read_text().splitlines():
            assert exact.fullmatch(line), f"{path}: {line}"


def test_links_between_documents() -> None:
    """Every relative link leads to a file."""
    broken = []
    for path in [path for path in tracked() if path.suffix == ".md"]:
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(REPOSITORY)}: {target}")
    assert broken == []
