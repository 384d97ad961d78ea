# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a validation takes that names no model and no text. The packages here carry anything."""

import hashlib
import os
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

from measure import fallbacks
from measure.defaults import DEFAULT_MODEL, HUB_MODEL, HUB_TEXT
from measure.models import ModelNotFoundError, PackagedModel, packaged
from measure.texts import Text
from measure.validation import TextNotFoundError
from validate_perplexity import load_model_and_tokenizer

CARRIED = Path(str(distribution("numpy").locate_file("numpy/version.py")))


def no_text(source: str) -> str:
    """A hub that is out of reach."""
    raise TextNotFoundError(source)


def only_packaged(name: str) -> str:
    """Loads what a package carries, and nothing of a hub."""
    if name == HUB_MODEL:
        raise ModelNotFoundError(name)
    return f"loaded {name}"


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text and a model that an installed package has."""
    digest = hashlib.sha256(CARRIED.read_bytes()).hexdigest()
    text = Text("a", "a file", "numpy", "numpy/version.py", digest, bytes.decode)
    monkeypatch.setattr(fallbacks, "_TEXT", text)
    monkeypatch.setattr(fallbacks, "_MODEL", PackagedModel("Small", ("numpy",), "", ("small",)))


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without either."""
    text = Text("a", "a file", "kvcompress-no-such", "a", "", bytes.decode)
    monkeypatch.setattr(fallbacks, "_TEXT", text)
    monkeypatch.setattr(
        fallbacks, "_MODEL", PackagedModel("Small", ("kvcompress-no-such",), "", ("small",))
    )


def test_packages_come_first_and_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a hub could be reached too, from which a stranger would download 2 GB."""
    monkeypatch.setattr(fallbacks, "load_text", lambda source: f"text of {source}")
    of_numpy = f"of numpy {version('numpy')}"
    assert fallbacks.text() == (f"a file, {of_numpy}", CARRIED.read_text())
    assert fallbacks.model(str.upper) == (f"Small, {of_numpy}", "SMALL")
    first, second = capsys.readouterr().err.splitlines()
    why = "which this environment carries, so that nothing is downloaded"
    assert first == f"Note: text: a file, {of_numpy}, {why}; --text names another"
    assert second == f"Note: model: Small, {of_numpy}, {why}; --model names another"


@pytest.mark.usefixtures("no_packages")
def test_without_packages_the_hub_is_used_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fallbacks, "load_text", lambda source: f"text of {source}")
    assert fallbacks.text() == (HUB_TEXT, f"text of {HUB_TEXT}")
    assert fallbacks.model(str.upper) == (HUB_MODEL, HUB_MODEL.upper())
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"Note: text: {HUB_TEXT} of the Hugging Face hub")
    assert second.startswith(f"Note: model: {HUB_MODEL} of the Hugging Face hub, 2 GB")
    for line in (first, second):
        assert "kvcompress-no-such" in line


def test_another_file_of_a_package_is_not_taken_for_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fallbacks, "load_text", lambda source: f"text of {source}")
    for path, digest in (("numpy/version.py", "0" * 64), ("numpy/no-such", "")):
        text = Text("a", "a file", "numpy", path, digest, bytes.decode)
        monkeypatch.setattr(fallbacks, "_TEXT", text)
        assert fallbacks.text() == (HUB_TEXT, f"text of {HUB_TEXT}")


@pytest.mark.usefixtures("no_packages")
def test_without_packages_the_error_is_that_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallbacks, "load_text", no_text)
    with pytest.raises(TextNotFoundError, match=HUB_TEXT):
        fallbacks.text()
    with pytest.raises(ModelNotFoundError, match=HUB_MODEL):
        fallbacks.model(only_packaged)


def test_the_default_is_a_model_that_a_package_carries() -> None:
    """Also of the function that loads one, for who imports it."""
    carried = packaged(DEFAULT_MODEL)
    assert carried is not None
    assert carried.packages == (DEFAULT_MODEL,)
    assert load_model_and_tokenizer.__defaults__ == (DEFAULT_MODEL, None)


def test_the_hub_is_looked_for_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where packages have both defaults."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(fallbacks, "_reachable", lambda: pytest.fail("the hub was asked"))
    fallbacks.stay_offline_without_a_hub(None, None)
    assert "HF_HUB_OFFLINE" not in os.environ


@pytest.mark.usefixtures("no_packages")
def test_a_hub_out_of_reach_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its libraries would try for half a minute; and what somebody has set stays."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fallbacks.stay_offline_without_a_hub(None, None)
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    monkeypatch.delenv("HF_HUB_OFFLINE")
    fallbacks.stay_offline_without_a_hub("a model", "a text")
    assert "HF_HUB_OFFLINE" not in os.environ
    for names in (("a model", None), (None, "a text")):
        fallbacks.stay_offline_without_a_hub(*names)
        assert os.environ.pop("HF_HUB_OFFLINE") == "1"
