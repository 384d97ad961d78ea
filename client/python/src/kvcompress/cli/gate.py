# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The bounds that a caller sets: every tensor is held to them, or nothing is published."""

from collections.abc import Iterator
from dataclasses import fields, replace

from kvcompress.options import CompressArguments
from kvcompress.reports import CompressionReport, TensorReport, Thresholds

_MOST_SENTENCES = 20  # the others are counted
_NAMES = [field.name for field in fields(Thresholds)]


def parse_thresholds(text: str) -> Thresholds:
    """Reads bounds of the form `max_rmse=0.1,min_snr_db=20`.

    Raises:
        ValueError: They are not of this form; with a sentence that goes on from "invalid value".
    """
    bounds: dict[str, float] = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if name not in _NAMES:
            names = ", ".join(_NAMES)
            words = f'must be NAME=VALUE pairs, with names among {names}, but has "{pair}"'
            raise ValueError(words)
        if name in bounds:
            raise ValueError(f"{name} is given twice")
        bounds[name] = parse_finite(value, f"the value of {name} must be a finite number")
    return Thresholds(**bounds)


def parse_finite(text: str, why: str) -> float:
    """Reads a finite number.

    Raises:
        ValueError: It is none; with `why`.
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError(why) from None
    if not abs(value) < float("inf"):
        raise ValueError(why)
    return value


def has_gate(options: CompressArguments) -> bool:
    """Tells whether the caller set any bounds."""
    names = ("thresholds", "key_thresholds", "value_thresholds")
    return any(options.get(name) is not None for name in names)


def apply_gate(
    options: CompressArguments, report: CompressionReport
) -> tuple[CompressionReport, bool]:
    """Holds every tensor to the bounds.

    Args:
        options: What was asked for.
        report: What came of it, with every tensor.

    Returns:
        The report, with a violation for each bound that a tensor misses, and whether none does.
    """
    sentences = [
        sentence
        for tensor in report.tensors
        for sentence in _missed(tensor, _bounds(options, tensor.role))
    ]
    if not sentences:
        return report, True
    if len(sentences) > _MOST_SENTENCES:
        more = len(sentences) - _MOST_SENTENCES
        sentences[_MOST_SENTENCES:] = [f"and {more} more bounds are missed"]
    violations = (*report.verdict.violations, *sentences)
    verdict = replace(report.verdict, passed=False, violations=violations)
    return replace(report, verdict=verdict), False


def _bounds(options: CompressArguments, role: str | None) -> dict[str, float]:
    """Gives the bounds for a role."""
    own = {"key": options.get("key_thresholds"), "value": options.get("value_thresholds")}
    result: dict[str, float] = {}
    for thresholds in (options.get("thresholds"), own.get(role or "")):
        for name in _NAMES:
            value = getattr(thresholds, name, None)
            if value is not None:
                result[name] = value
    return {name: result[name] for name in _NAMES if name in result}


def _missed(tensor: TensorReport, bounds: dict[str, float]) -> Iterator[str]:
    """Gives a sentence for each bound that a tensor misses."""
    for name, limit in bounds.items():
        upper = name.startswith("max_")
        metric = name if name == "max_error" else name.partition("_")[2]
        value = getattr(tensor.metrics, metric)
        if value is None and _is_unknown(tensor, metric):
            yield (
                f'{metric} of tensor "{tensor.name}" is not known for its shape, '
                f"so it is not above {limit:g}"
            )
        if value is None or (value < limit if upper else value > limit):
            continue
        side, distance = ("below", value - limit) if upper else ("above", limit - value)
        yield (
            f'{metric} {value:g} of tensor "{tensor.name}" is not {side} {limit:g}: '
            f"it misses by {distance:g}"
        )


def _is_unknown(tensor: TensorReport, metric: str) -> bool:
    """Tells whether an error has no such metric for the shape of its tensor.

    The error of the first token is known wherever tokens are.
    """
    roles = {"centred_snr_db": ("key",), "token_snr_db_p1": ("key", "value")}
    return (
        tensor.role in roles.get(metric, ())
        and tensor.metrics.max_error > 0
        and tensor.metrics.first_token_rmse is None
    )
