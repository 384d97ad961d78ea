# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The documents as a site: built with every link checked, whole, searchable, loading nothing."""

import html
import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from documents import REPOSITORY, claimed_line, run_line

from kvcompress.v1 import compression_service_pb2

# The first run makes an environment.
pytestmark = pytest.mark.timeout(300)
RULES = REPOSITORY / "deploy/prometheus/rules.yaml"


@pytest.fixture(scope="module")
def site(bin_dir: Path) -> Path:
    """What deploy/site writes."""
    printed = run_line(claimed_line("site"), seconds=280, KVCOMPRESS_BIN_DIR=str(bin_dir.resolve()))
    index = REPOSITORY / printed.strip()
    assert index.is_file()
    return index.parent


def words(page: Path) -> str:
    """The text of a page."""
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]+>", "", page.read_text())))


@pytest.mark.parametrize("program", ["kv-compress", "kv-compressd"])
def test_every_option_is_in_the_reference(site: Path, bin_dir: Path, program: str) -> None:
    """With what --help says of it."""
    command = [str(bin_dir / program), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", text))
    assert len(options) > 20
    page = words(site / "reference" / f"{program}.html")
    assert [option for option in sorted(options) if option not in page] == []


def test_every_call_and_message_is_in_the_reference(site: Path) -> None:
    """Of the API, each by an anchor of its own."""
    text = (site / "reference" / "api.html").read_text()
    file = compression_service_pb2.DESCRIPTOR
    names = [
        *file.message_types_by_name,
        *file.services_by_name["CompressionService"].methods_by_name,
    ]
    assert [name for name in names if f'id="{name.lower()}"' not in text] == []


def test_every_alert_is_in_the_reference(site: Path) -> None:
    """Where its runbook_url leads, on the page of alerts too."""
    text = (site / "reference" / "alerts.html").read_text()
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]
    assert [name for name in alerts if f'id="{name.lower()}"' not in text] == []


def test_the_package_is_in_the_reference(site: Path) -> None:
    """With signatures and examples."""
    text = (site / "reference" / "python.html").read_text()
    names = ("Client.compress", "QualityError", "options", "load_file", "torch.load_file")
    for name in names:
        assert f'id="kvcompress.{name}"' in text


def test_every_codec_is_in_the_navigation(site: Path) -> None:
    """Each page of docs/codecs, from any page: those of the table are added by a hook."""
    text = (site / "docs" / "quality.html").read_text()
    pages = {path.stem for path in (REPOSITORY / "docs" / "codecs").glob("*.md")} - {"README"}
    assert len(pages) > 10
    navigation = text[: text.index("<article")]
    assert [page for page in sorted(pages) if f'href="codecs/{page}.html"' not in navigation] == []


def test_search_finds_the_guides(site: Path) -> None:
    """All of them are in its index."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    guides = {page.stem for page in (REPOSITORY / "docs" / "guides").glob("*.md")} - {"README"}
    assert {f"docs/guides/{name}.html" for name in guides} | {"docs/tutorial.html"} <= found


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """No script, style, font or picture."""
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|iframe)\b[^>]*\bsrc="?(https?:[^"\s>]*)', page.read_text()
        )
        loaded += re.findall(
            r'<link\b[^>]*stylesheet[^>]*href="?(https?:[^"\s>]*)', page.read_text()
        )
        assert loaded == [], page
