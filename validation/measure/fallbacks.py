# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The model and the text of a validation that names none: of packages, else of the hub.

Which it is, and why, is said on standard error; the results have its name.
"""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from measure.defaults import DEFAULT_MODEL, HUB_MODEL, HUB_TEXT
from measure.models import MODELS, ModelNotFoundError
from measure.texts import TEXTS
from measure.validation import load_text

_HUB = "https://huggingface.co"
_SECONDS = 5.0
_MODEL = next(model for model in MODELS if DEFAULT_MODEL in model.names)
_TEXT = TEXTS[0]
_WHY = "which this environment carries, so that nothing is downloaded"
# The package is not installed, has no such file, or has another file than the one meant.
_NO_TEXT = (PackageNotFoundError, OSError, ValueError)
Loaded = TypeVar("Loaded")


def stay_offline_without_a_hub(model_name: str | None, text_source: str | None) -> None:
    """Keeps the hub's libraries from trying where it is out of reach, which takes half a minute.

    The hub is looked for where a default is needed that no package has. Works where its libraries
    are yet to be imported.

    Args:
        model_name: Of a model; None for the default.
        text_source: Of a text; None for the default.
    """
    needed = (model_name is None and not _has_model()) or (text_source is None and not _has_text())
    if needed and "HF_HUB_OFFLINE" not in os.environ and not _reachable():
        os.environ["HF_HUB_OFFLINE"] = "1"


def text() -> tuple[str, str]:
    """Returns news stories of a package, else a text of the hub: what it is, and the text.

    Raises:
        TextNotFoundError: Neither is to be had.
    """
    try:
        words = _TEXT.read()
    except _NO_TEXT as error:
        _note(f"text: {HUB_TEXT} of the Hugging Face hub, as no package has one: {error}")
        return HUB_TEXT, load_text(HUB_TEXT)
    name = f"{_TEXT.kind}, of {_TEXT.package} {version(_TEXT.package)}"
    _note(f"text: {name}, {_WHY}; --text names another")
    return name, words


def model(load: Callable[[str], Loaded]) -> tuple[str, Loaded]:
    """Returns the model of a package, else one of the hub: what it is, and what loading it gave.

    Args:
        load: Loads a model by its name.

    Raises:
        ModelNotFoundError: Neither is to be had.
    """
    try:
        name = f"{_MODEL.title}, of {_MODEL.software}"
    except ModelNotFoundError as error:
        _note(f"model: {HUB_MODEL} of the Hugging Face hub, 2 GB once: {error}")
        return HUB_MODEL, load(HUB_MODEL)
    _note(f"model: {name}, {_WHY}; --model names another")
    return name, load(_MODEL.names[0])


def _has_model() -> bool:
    """Returns whether a package has the default model."""
    try:
        return bool(_MODEL.software)
    except ModelNotFoundError:
        return False


def _has_text() -> bool:
    """Returns whether a package has the default text."""
    try:
        return bool(_TEXT.read())
    except _NO_TEXT:
        return False


def _reachable() -> bool:
    """Returns whether the hub answers anything."""
    try:
        # The hub's own libraries ask the same address.
        request = urllib.request.Request(os.environ.get("HF_ENDPOINT", _HUB), method="HEAD")  # noqa: S310
        with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def _note(what: str) -> None:
    """Says what was chosen, and why."""
    print(f"Note: {what}", file=sys.stderr)
