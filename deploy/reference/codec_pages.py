# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A hook of MkDocs: puts the codecs of the table in docs/codecs/README.md into the navigation."""

import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

_INDEX = "docs/codecs/README.md"
_LINK = re.compile(r"^\| \[`([\w-]+)`\]\((\S+)\)", re.MULTILINE)


def on_config(config: MutableMapping[str, Any]) -> None:
    """Adds the pages behind the table's own, which mkdocs.yml names."""
    table = (Path(config["docs_dir"]) / _INDEX).read_text()
    pages = [{name: f"docs/codecs/{file}"} for name, file in dict(_LINK.findall(table)).items()]
    for tab in config["nav"]:
        for entries in tab.values():
            for entry in entries:
                if isinstance(entry, dict) and "Codecs" in entry:
                    entry["Codecs"][1:1] = pages
