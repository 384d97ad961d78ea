# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures every codec on a real model, next to codecs of others, and writes the results.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    PYTHONPATH=client/python/src $PYTHON validation/codec_study.py

A model reads real text; its cache goes through the running service and back, into the model,
which goes on reading. See README.md next to this file.
"""

import os

# Cores are shared with the server, and with others: waiting threads are not to spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import json
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

import kvcompress
from compression_bridge import REPOSITORY, open_client
from kvcompress.profiles import read_profile
from measure import peers, plot, report, rows
from measure.models import default_cache, packaged
from measure.profile_bench import FileRow, flags_of
from measure.study import Setting, Study
from measure.texts import TEXTS

RESULTS = REPOSITORY / "validation" / "results"


def say(text: str) -> None:
    """Prints a line of progress."""
    print(text, file=sys.stderr, flush=True)


def parse_study(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Reads a command line that also says what a study measures on, and where it works."""
    default = Setting()
    parser.add_argument("--model", default=default.model, help="as for validate_perplexity.py")
    parser.add_argument("--windows", type=int, default=default.windows, help="windows of text")
    parser.add_argument("--prefix", type=int, default=default.prefix, help="tokens compressed")
    parser.add_argument(
        "--continuation", type=int, default=default.continuation, help="tokens scored after them"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the model")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache(),
        help="folder for what is kept between runs",
    )
    return parser.parse_args(arguments)


def setting_of(arguments: argparse.Namespace) -> Setting:
    """Returns what a study measures on."""
    return Setting(arguments.model, arguments.windows, arguments.prefix, arguments.continuation)


def words_of(script: str, setting: Setting) -> list[str]:
    """Returns the command that repeats a study; folders and threads change no number."""
    default, words = Setting(), [f"validation/{script}"]
    for name in ("model", "windows", "prefix", "continuation"):
        if getattr(setting, name) != getattr(default, name):
            words += [f"--{name}", str(getattr(setting, name))]
    return words


def quieten(threads: int) -> None:
    """Sets how many threads the model has, and keeps its library from talking."""
    torch.set_num_threads(threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--codec", action="append", help="only this row of the service, with the reference"
    )
    parser.add_argument("--profile", type=Path, help="of this model, whose presets are rows too")
    parser.add_argument(
        "--engines", action="store_true", help="with vLLM and LMCache, in their own environment"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave the others out")
    parser.add_argument("--no-stages", action="store_true", help="leave the last stages out")
    return parse_study(parser, arguments)


def machine() -> str:
    """Describes what this runs on."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = [
            line.split(":", 1)[1].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        name = found[0] if found else name
    return f"{os.cpu_count()} cores of {name}"


def profile_line(path: Path) -> str:
    """Returns what a profile is."""
    info = read_profile(path)
    return f"{info.digest}, {info.size:,} bytes, which are not counted; training: {info.training}"


def command(arguments: argparse.Namespace) -> str:
    """Returns the command that repeats a run."""
    words = words_of("codec_study.py", setting_of(arguments))
    words += [f"--codec={codec}" for codec in arguments.codec or ()]
    if arguments.profile is not None:
        words += ["--profile", arguments.profile.name]
    for name in ("engines", "no_peers", "no_stages"):
        words += [f"--{name.replace('_', '-')}"] * getattr(arguments, name)
    return shlex.join(words)


def last_stages(client: kvcompress.Client, study: Study) -> list[dict[str, Any]]:
    """Measures sizes with each byte compressor, on the first window of each text."""
    first = {window.text: index for index, window in reversed(list(enumerate(study.windows)))}
    paths = [study.cache_file(index) for index in sorted(first.values())]
    jobs = [(row.name, "", row.options) for row in rows.service_rows(client)]
    extra = list(rows.last_stage_rows(client))
    results = []
    for codec, stage, options in [*jobs, *extra] if extra else []:
        reports = [client.measure(path, **options) for path in paths]
        total = sum(each.compressed_size_bytes for each in reports)
        ratio = 2 * sum(each.metrics.elements for each in reports) / total
        results.append({"codec": codec, "stage": stage, "ratio": ratio, "windows": len(paths)})
        say(f"{codec}, last stage {stage or 'none'}: {ratio:.3f}x")
    return results


def rows_of(arguments: argparse.Namespace, client: kvcompress.Client) -> list[rows.Row]:
    """Returns the rows of the table."""
    chosen: list[rows.Row] = [
        row
        for row in rows.service_rows(client)
        if not arguments.codec or row.name in {*arguments.codec, report.REFERENCE}
    ]
    own = f"kvcompress {client.server_info().version}"
    for name, flags in flags_of([], arguments.profile).items():
        chosen.append(FileRow(name.replace(":", " "), own, flags))
    if not arguments.no_peers:
        chosen += peers.peer_rows()
    if arguments.engines:
        chosen += peers.engine_rows()
    return chosen


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs the study and returns the document."""
    start = time.monotonic()
    setting = setting_of(arguments)
    study = Study(setting, arguments.cache, say)
    kept = (arguments.cache / f"study-{study.key}" / "windows.json").exists()
    client = open_client()
    chosen = rows_of(arguments, client)
    results = study.run(chosen)
    stages = [] if arguments.no_stages else last_stages(client, study)
    server = client.server_info()
    carried = packaged(setting.model)
    setup = {
        "model": setting.model if carried is None else carried.title,
        "windows": len(study.windows),
        "prefix": setting.prefix,
        "continuation": setting.continuation,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "command": command(arguments),
        "minutes": (time.monotonic() - start) / 60,
        "kept": kept,
        "profile": None if arguments.profile is None else profile_line(arguments.profile),
        "software": [
            f"kvcompress {server.version} ({server.kernels} kernels)",
            *(f"{name} {version(name)}" for name in ("torch", "transformers")),
            *([] if carried is None else [carried.software]),
        ],
        "texts": [
            f"{text.kind} from {text.package} {version(text.package)}, "
            f"{sum(window.text == text.name for window in study.windows)} windows"
            for text in TEXTS
        ],
    }
    names = [{"name": row.name, "family": row.family, "version": row.version} for row in chosen]
    return report.document(setup, names, results, stages)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study and writes table, numbers and picture."""
    parsed = parse(arguments)
    quieten(parsed.threads)
    study = run(parsed)
    parsed.output.mkdir(parents=True, exist_ok=True)
    (parsed.output / "codec_study.json").write_text(json.dumps(study, indent=1) + "\n")
    page = report.markdown(study)
    (parsed.output / "codec_study.md").write_text(page)
    plot.plot(study, parsed.output / "codec_study.png")
    print(page)


if __name__ == "__main__":
    main()
