# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Bounds as callers write them: values of Thresholds, mappings, keyword arguments."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches

from kvcompress.v1.quality_types import ThresholdArguments, Thresholds

ThresholdsChoice = Thresholds | ThresholdArguments
"""Thresholds, or a mapping with the names of its fields."""

_NAMES = tuple(Thresholds.__dataclass_fields__)


def as_thresholds(given: ThresholdsChoice | None, argument: str) -> Thresholds | None:
    """Returns the bounds of an argument.

    Args:
        given: What the caller wrote.
        argument: Name of the argument, for errors.

    Raises:
        TypeError: It is neither, a name is not one of a bound, or a bound is no number.
    """
    if given is None or isinstance(given, Thresholds):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{argument} is a Thresholds or a mapping such as {{'min_snr_db': 30}}, "
            f"not {type(given).__name__}"
        )
    check_names(given, argument, _NAMES)
    for name, limit in given.items():
        if limit is not None and not isinstance(limit, int | float):
            raise TypeError(f"{name} of {argument} is a number, not {type(limit).__name__}")
    return Thresholds(**given)


def with_shorthands(
    given: ThresholdsChoice | None, shorthands: ThresholdArguments
) -> Thresholds | None:
    """Returns the bounds of `thresholds` together with those that are arguments themselves.

    Raises:
        TypeError: As `as_thresholds`, or a bound is given twice.
    """
    bounds = as_thresholds(given, "thresholds")
    short = as_thresholds(shorthands, "the arguments") if shorthands else None
    if bounds is None or short is None:
        return bounds or short
    limits = {name: getattr(short, name) for name in shorthands}
    for name in limits:
        if getattr(bounds, name) is not None:
            raise TypeError(f"{name} is given twice: in thresholds and as an argument")
    return replace(bounds, **limits)


def check_names(given: Collection[str], argument: str, known: Collection[str]) -> None:
    """Checks that names are known.

    Raises:
        TypeError: One is not; it says which is nearest, and lists those that are.
    """
    unknown = next((name for name in given if name not in known), None)
    if unknown is None:
        return
    listed = ", ".join(known)
    if nearest := get_close_matches(str(unknown), known, 1):
        raise TypeError(
            f"{argument}: there is no {unknown!r}; did you mean {nearest[0]!r}? There are {listed}"
        )
    raise TypeError(f"{argument}: there is no {unknown!r}, only {listed}")
