#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the notes of a release, from the section of its version in the changelog.

Usage: notes.py VERSION     (to standard output; exit status 1 if there is no such section)
"""

import re
import sys
from pathlib import Path

_CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
# `## VERSION (DATE)`, where the date is `unreleased` until there is one.
_HEADING = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.MULTILINE)
_FILES = """
### Files

`SHA256SUMS` has the checksums of all files. In the folder of a download:

    sha256sum --check --ignore-missing SHA256SUMS
"""


class NoSectionError(Exception):
    """The changelog has nothing of a version; the message says what it has."""


def release_notes(changelog: str, version: str) -> str:
    """Returns the notes of a release, in Markdown for the page of a release.

    Such a page breaks lines where a text does, and resolves no links to files of the repository:
    each paragraph and each entry becomes one line, and such a link its text with the path behind.

    Args:
        changelog: Of all versions, each under a heading `## VERSION (DATE)`; headings, paragraphs
            and lists, without blocks of code.
        version: Such as `0.1.0`.

    Returns:
        The heading, the section, and how checksums are compared.

    Raises:
        NoSectionError: The version has no heading, several, or nothing below it.
    """
    headings = list(_HEADING.finditer(changelog))
    found = [heading for heading in headings if heading[1] == version]
    if len(found) != 1:
        versions = ", ".join(heading[1] for heading in headings) or "none"
        raise NoSectionError(
            f"CHANGELOG.md has {len(found)} headings `## {version} (DATE)`, and one is needed; "
            f"its versions: {versions}"
        )
    after = [heading.start() for heading in headings if heading.start() > found[0].start()]
    section = changelog[found[0].end() : after[0] if after else None].strip()
    if not section:
        raise NoSectionError(f"CHANGELOG.md has nothing below `{found[0][0]}`: enter what changed")
    section = re.sub(r"(?<=\S)\n *(?![-*] )(?=[^\s#])", " ", section)
    section = re.sub(r"\[([^\]]+)\]\((?!\w+:)([^)]+)\)", r"\1 (`\2`)", section)
    date = f" ({found[0][2]})" if found[0][2] else ""
    return f"## KV Compress {version}{date}\n\n{section}\n{_FILES}"


def main() -> None:
    """Prints the notes of the version on the command line."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(release_notes(_CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]), end="")
    except NoSectionError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
