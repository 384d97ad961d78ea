# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The notes of a release are the section of its version in the changelog."""

import re
import subprocess

import pytest
from bundle.notes import NoSectionError, release_notes
from documents import REPOSITORY, text_of

CHANGELOG = """\
# Changelog

See [another page](VERSIONING.md).

## 0.2.0 (2026-12-01)

API `v1`,
format 1.

### Server

- An entry of [two
  lines](docs/a.md), and [a site](https://example.com).
- One with
  - an entry
    of its own.

## 0.1.10

- Of another version.

## 0.1.1 (unreleased)
"""


def test_each_entry_is_one_line_and_links_are_paths() -> None:
    notes, separator, files = release_notes(CHANGELOG, "0.2.0").partition("\n### Files\n")
    assert notes == (
        "## KV Compress 0.2.0 (2026-12-01)\n\nAPI `v1`, format 1.\n\n### Server\n\n"
        "- An entry of two lines (`docs/a.md`), and [a site](https://example.com).\n"
        "- One with\n  - an entry of its own.\n"
    )
    assert separator
    assert "sha256sum --check --ignore-missing SHA256SUMS" in files
    assert release_notes(CHANGELOG, "0.1.10").startswith(
        "## KV Compress 0.1.10\n\n- Of another version.\n\n### Files"
    )


@pytest.mark.parametrize(
    ("changelog", "version", "message"),
    [
        (CHANGELOG, "0.3.0", r"has 0 headings `## 0.3.0 \(DATE\)`.*: 0.2.0, 0.1.10, 0.1.1$"),
        (CHANGELOG, "0.1", "has 0 headings"),
        (CHANGELOG, "0.1.1", r"nothing below `## 0.1.1 \(unreleased\)`: enter what changed"),
        (CHANGELOG + "## 0.2.0\n\n- Again.\n", "0.2.0", "has 2 headings"),
        ("", "0.1.0", "its versions: none"),
    ],
)
def test_a_version_without_a_section_has_no_notes(
    changelog: str, version: str, message: str
) -> None:
    with pytest.raises(NoSectionError, match=message):
        release_notes(changelog, version)


def notes_of(version: str) -> "subprocess.CompletedProcess[str]":
    """What deploy/release calls."""
    command = [str(REPOSITORY / "deploy" / "bundle" / "notes.py"), version]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_version_of_this_tree_has_notes() -> None:
    """All of its section, without a link that leads nowhere."""
    [version] = re.findall(r"project\(kvcompress VERSION (\S+)", text_of("CMakeLists.txt"))
    done = notes_of(version)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"## KV Compress {version}")
    assert re.search(r"\]\((?!https?:)", done.stdout) is None
    section = text_of("CHANGELOG.md").partition(f"\n## {version}")[2].partition("\n## ")[0]
    assert done.stdout.count("\n- ") == section.count("\n- ")
    # Blocks of code would become one line.
    assert "```" not in section


def test_without_a_section_the_script_fails() -> None:
    """Before deploy/release builds anything."""
    done = notes_of("9.9.9")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: CHANGELOG.md has 0 headings `## 9.9.9 (DATE)`")
    script = text_of("deploy/release")
    assert script.index("bundle/notes.py") < script.index('"$repo/deploy/build"')
