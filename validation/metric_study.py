# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures which metric of a report ranks codecs as the model does, and writes the table.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    PYTHONPATH=client/python/src $PYTHON validation/metric_study.py --model smollm2 --model gemma3

Every codec and preset of the running service compresses the cache of each window. A metric ranks
well if it orders them as the KL divergence does that their decoded caches cause. See README.md
next to this file.
"""

import os

# Cores are shared with the server, and with others: waiting threads are not to spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load

import kvcompress
from codec_study import RESULTS, machine, quieten, say
from compression_bridge import open_client
from measure import rows
from measure.models import default_cache, packaged
from measure.scores import Floats
from measure.study import Setting, Study

REFERENCE = "int4"
NOT_COMPARED = "int4-hadamard"  # which kv-compress -compare leaves out
LEADING = "`centred_snr_db`, all keys"
STEPS_DB = (0, 10, 15, 20, 25, 30)  # from which the rows of a table begin
WORSE = 1.5  # times the KL divergence: less is noise of a window
EXACT_DB = 200.0  # stands for an SNR of values that are exact, which have none

Report = kvcompress.CompressionReport
Metric = Callable[[Report], float]


def _pooled(name: str, sign: int = 1) -> Metric:
    def value(report: Report) -> float:
        found = getattr(report.metrics, name)
        return EXACT_DB if found is None else sign * float(found)

    return value


def _worst(name: str) -> Metric:
    def value(report: Report) -> float:
        found = [getattr(tensor.metrics, name) for tensor in report.tensors]
        return min((each for each in found if each is not None), default=EXACT_DB)

    return value


def _mean_noise(report: Report) -> float:
    """Every key counts as much, whatever its size and norm; a report has no such metric."""
    found = [tensor.metrics for tensor in report.tensors if tensor.role == "key"]
    shares = [10 ** (-(each.centred_snr_db or EXACT_DB) / 10) for each in found]
    return -sum(shares) / max(len(shares), 1)


def _passed(report: Report) -> float:
    return -report.tensors_failed


METRICS: Mapping[str, Metric] = {
    LEADING: _pooled("centred_snr_db"),
    "`centred_snr_db`, the worst key": _worst("centred_snr_db"),
    "noise to signal of centred keys, mean over keys": _mean_noise,
    "`snr_db`": _pooled("snr_db"),
    "`snr_db`, the worst tensor": _worst("snr_db"),
    "`rmse`": _pooled("rmse", -1),
    "`max_error`": _pooled("max_error", -1),
    "`cosine_similarity`": _pooled("cosine_similarity"),
    "`token_snr_db_p1`": _pooled("token_snr_db_p1"),
    "`first_token_rmse`": _pooled("first_token_rmse", -1),
    "tensors within the default thresholds": _passed,
}
"""What a report says, by name; more is better."""


def ranks(values: Sequence[float]) -> Floats:
    """Returns the rank of each value from 0; equal values share the mean of theirs."""
    array = np.asarray(values, dtype=np.float64)
    less = (array[:, None] > array).sum(axis=1)
    equal = (array[:, None] == array).sum(axis=1)
    shared: Floats = less + (equal - 1) / 2
    return shared


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns Spearman's rank correlation; nan if all values of one are equal."""
    a, b = ranks(first), ranks(second)
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread else math.nan


def misleading(values: Sequence[float], damage: Sequence[float]) -> tuple[int, int]:
    """Counts pairs of which one does more than WORSE times the damage of the other.

    Returns:
        Of how many pairs the more damaging one has the better value, and of how many in all.
    """
    pairs = [
        (values[i] > values[j])
        for i in range(len(values))
        for j in range(len(values))
        if damage[i] > WORSE * damage[j]
    ]
    return sum(pairs), len(pairs)


def measured(study: Study, chosen: Sequence[rows.ServiceRow]) -> Iterator[dict[str, Any]]:
    """Yields, for each window, every row's metrics and KL divergence in nats per token."""
    for index, window in enumerate(study.windows):
        path = study.cache_file(index)
        reports, decoded = [], []
        for row in chosen:
            result = row.client.compress(path, report_tensors=True, **row.options)
            assert result.artefact is not None  # noqa: S101  no output path was given
            restored = row.client.decompress(result.artefact).safetensors
            assert restored is not None  # noqa: S101
            reports.append(result.report)
            decoded.append(load(restored))
        damage = [score.kl for score in study.score(index, decoded)[1:]]
        say(f"window {index + 1} of {len(study.windows)}, {window.text}")
        yield {
            "text": window.text,
            "kl": damage,
            "ratio": [report.compression_ratio for report in reports],
            "metrics": {name: [of(each) for each in reports] for name, of in METRICS.items()},
        }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs the study and returns the document."""
    start = time.monotonic()
    client = open_client()
    # A codec that loses nothing has no rank; `auto` is one of the others.
    chosen = [row for row in rows.service_rows(client) if row.name not in {"lossless", "auto"}]
    chosen = [row for row in chosen if not row.name.endswith(" best")]
    models = []
    for name in arguments.model:
        setting = Setting(name, arguments.windows, arguments.prefix, arguments.continuation)
        study = Study(setting, arguments.cache, say)
        carried = packaged(name)
        title = Path(name).stem if carried is None else carried.title
        models.append({"model": title, "windows": list(measured(study, chosen))})
    words = ["validation/metric_study.py"]
    for name in arguments.model:
        words += ["--model", name]
    server = client.server_info()
    return {
        "setup": {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(),
            "command": shlex.join(words),
            "minutes": (time.monotonic() - start) / 60,
            "windows": arguments.windows,
            "prefix": arguments.prefix,
            "continuation": arguments.continuation,
            "software": f"kvcompress {server.version}, torch {version('torch')}, "
            f"transformers {version('transformers')}",
        },
        "codecs": [row.name for row in chosen],
        "models": models,
    }


def correlations(windows: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """Returns a metric's rank correlation with the KL divergence, negated, on each window."""
    return [-rank_correlation(each["metrics"][metric], each["kl"]) for each in windows]


def misled(models: Sequence[Mapping[str, Any]], metric: str, codecs: Sequence[int]) -> float:
    """Returns the share of pairs of these codecs on which a metric misleads."""
    counts = [
        misleading(
            [window["metrics"][metric][index] for index in codecs],
            [window["kl"][index] for index in codecs],
        )
        for model in models
        for window in model["windows"]
    ]
    return sum(wrong for wrong, _ in counts) / sum(pairs for _, pairs in counts)


def markdown(study: Mapping[str, Any]) -> str:
    """Returns the document as a page."""
    setup, models = study["setup"], study["models"]
    found = {
        metric: [correlations(model["windows"], metric) for model in models] for metric in METRICS
    }
    best = sorted(found, key=lambda metric: -float(np.nanmean(np.concatenate(found[metric]))))
    lines = [
        "<!-- Written by validation/metric_study.py; do not edit. -->",
        "# Which metric ranks codecs as the model does",
        "",
        f"{len(study['codecs'])} codecs and presets compressed the caches of {setup['prefix']} "
        f"tokens (BF16) of {setup['windows']} windows of text, and each model then read the next "
        f"{setup['continuation']} tokens with the decoded cache. A metric ranks well if it orders "
        "the codecs as the KL divergence of the model's predictions does.",
        "",
        f"- Date: {setup['date']}. Machine: {setup['machine']}.",
        f"- Command: `{setup['command']}`. Took {setup['minutes']:.0f} minutes.",
        f"- Software: {setup['software']}.",
        "",
        f"| metric | {' | '.join(model['model'] for model in models)} | misleading pairs "
        f"| without `{NOT_COMPARED}` |",
        "| --- |" + " --- |" * (len(models) + 2),
    ]
    every = range(len(study["codecs"]))
    compared = [index for index in every if study["codecs"][index] != NOT_COMPARED]
    for metric in best:
        cells = [f"{np.nanmean(each):.2f} (least {np.nanmin(each):.2f})" for each in found[metric]]
        cells += [f"{misled(models, metric, codecs):.1%}" for codecs in (every, compared)]
        lines.append(f"| {metric} | {' | '.join(cells)} |")
    lines += [
        "",
        "The columns of models have Spearman's rank correlation with the negated KL divergence, in "
        "the mean over windows, and on the window where it is least. A pair of codecs is "
        f"misleading if one does more than {WORSE} times the damage of the other and the metric "
        f"calls it better. The last column leaves out `{NOT_COMPARED}`.",
        "",
        "## Damage by codec",
        "",
        f"KL divergence as a share of that of `{REFERENCE}`, the mean over windows against the "
        "mean; in parentheses the same by kind of text, the least and the largest.",
        "",
        "| codec | " + " | ".join(model["model"] for model in models) + " |",
        "| --- |" + " --- |" * len(models),
        *_damage(study),
        "",
        "## What an SNR of keys means",
        "",
        f"Over all models, windows and codecs but `{NOT_COMPARED}`: half of the results, and nine "
        f"of ten, did at most this share of the damage of `{REFERENCE}` on the same window.",
        "",
        "| SNR of keys | results | half | nine of ten |",
        "| --- | --- | --- | --- |",
        *_by_snr(study),
    ]
    return "\n".join(lines) + "\n"


def _damage(study: Mapping[str, Any]) -> Iterator[str]:
    at = study["codecs"].index(REFERENCE)
    for index, codec in enumerate(study["codecs"]):
        cells = []
        for model in study["models"]:
            kinds: dict[str, list[Mapping[str, Any]]] = {"": model["windows"]}
            for window in model["windows"]:
                kinds.setdefault(window["text"], []).append(window)
            mean, *by_kind = (
                sum(each["kl"][index] for each in windows) / sum(each["kl"][at] for each in windows)
                for windows in kinds.values()
            )
            cells.append(f"{mean:.0%} ({min(by_kind):.0%} to {max(by_kind):.0%})")
        yield f"| `{codec}` | {' | '.join(cells)} |"


def _by_snr(study: Mapping[str, Any]) -> Iterator[str]:
    codecs = study["codecs"]
    at = codecs.index(REFERENCE)
    found = [
        (window["metrics"][LEADING][index], window["kl"][index] / window["kl"][at])
        for model in study["models"]
        for window in model["windows"]
        for index, codec in enumerate(codecs)
        if codec != NOT_COMPARED
    ]
    for least, below in zip(STEPS_DB, (*STEPS_DB[1:], math.inf), strict=True):
        shares = [share for snr, share in found if least <= snr < below]
        if shares:
            half, most = np.percentile(shares, (50, 90))
            to = f"{least} dB and more" if math.isinf(below) else f"{least} to {below} dB"
            yield f"| {to} | {len(shares)} | {half:.0%} | {most:.0%} |"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--model", action="append", required=True, help="as for validate_perplexity.py; several"
    )
    parser.add_argument("--windows", type=int, default=8, help="windows of text for each model")
    parser.add_argument("--prefix", type=int, default=512, help="tokens compressed")
    parser.add_argument("--continuation", type=int, default=128, help="tokens scored after them")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the model")
    parser.add_argument("--output", type=Path, default=RESULTS / "metrics")
    parser.add_argument("--cache", type=Path, default=default_cache())
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study, and writes numbers and table."""
    parsed = parse(arguments)
    quieten(parsed.threads)
    study = run(parsed)
    parsed.output.mkdir(parents=True, exist_ok=True)
    (parsed.output / "metric_study.json").write_text(json.dumps(study, indent=1) + "\n")
    page = markdown(study)
    (parsed.output / "metric_study.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
