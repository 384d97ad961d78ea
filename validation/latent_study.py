# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What codecs make of the latents of multi-head latent attention (MLA), made from real caches.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    PYTHONPATH=client/python/src $PYTHON validation/latent_study.py

Caches are those of codec_study.py, of the first window of each of TEXTS. From its first tokens, and
from all, latents are made of the layers from each of LAYERS on, and coded in several layouts. No
model goes on with them.
"""

import datetime
import json
import os
import shlex
import statistics
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import kvcompress
from codec_study import machine, parse_study, quieten, say, setting_of, words_of
from compression_bridge import open_client
from kvcompress._arrays import load_arrays
from measure.study import Study

Floats = npt.NDArray[np.float64]

STEPS, CONTRACT = ("ecsq:0.52,0.52", "klt:0.52,0.52"), ("ecsq:contract", "klt:contract")
"""Codecs, each pair compared at the error of its first."""
LATENT = 512
TEXTS = ("news", "reference")
LAYERS = (0, 6, 14, 22)
"""The first of each four whose keys and values make a latent: more dimensions than it has."""
FEW = 512
"""Tokens, next to all of the prefix."""


def latents(layers: Sequence[tuple[Floats, Floats]], seed: int = 1) -> tuple[Floats, Floats]:
    """Makes an MLA cache of real keys and values, each [heads, tokens, dim].

    Keys and values of the layers are put side by side for each token, and projected to 512 numbers
    by a fixed matrix: their principal components, which are what least squares yields, and then a
    random orthogonal matrix, since a model's up-projection absorbs any and training prefers none.
    As in DeepSeek's models, each latent is then divided by its root mean square. The rotated part
    is the key of the first head as it is in the cache.

    Returns:
        Latents [tokens, 512] and rotated parts [tokens, dim].
    """
    stacked = np.concatenate(
        [np.swapaxes(part, 0, 1).reshape(part.shape[1], -1) for layer in layers for part in layer],
        axis=1,
    )
    _, _, directions = np.linalg.svd(stacked, full_matrices=False)
    projected = stacked @ directions[:LATENT].T
    mixing = np.linalg.qr(np.random.default_rng(seed).standard_normal((LATENT, LATENT)))[0]
    latent = projected @ mixing[: projected.shape[1]]
    latent /= np.sqrt((latent**2).mean(axis=1, keepdims=True))
    return latent, layers[0][0][0]


def layouts(
    latent: Floats, rotated: Floats, theta: float
) -> Iterator[tuple[str, Mapping[str, Any], Floats]]:
    """Yields names, options and tensors: the latent alone, and with its rotated part.

    The RoPE of the cache that was taken is declared for the last two. Between these the difference
    is whether the rotated part is a head's end or, as `mla` says, a tensor of its own.
    """
    both = np.concatenate([latent, rotated], axis=1)
    config = {
        "rope_theta": theta,
        "kv_lora_rank": LATENT,
        "qk_rope_head_dim": rotated.shape[1],
    }
    halves = latent.reshape(len(latent), -1, 256).transpose(1, 0, 2)
    yield "[1, 1, T, 512]", {}, latent[None, None]
    yield "[1, 2, T, 256]", {}, halves[None]
    yield "[1, 1, T, 576]", {"layout": "bhtd"}, both[None, None]
    yield "[1, 1, T, 576], RoPE told", {"layout": "bhtd", "model_config": config}, both[None, None]
    told = {"layout": f"mla:rope={rotated.shape[1]}", "model_config": config}
    yield "[T, 576] as `mla`, RoPE told", told, both


def measure(
    client: kvcompress.Client, values: Floats, options: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """Codes one tensor with every codec: bits a value, and SNR in dB."""
    found = {}
    for codec in (*STEPS, *CONTRACT):
        report = client.measure({"latent": np.float32(values)}, codec=codec, **options)
        assert report.metrics.snr_db is not None  # noqa: S101  no codec here is exact
        found[codec] = {"bits": report.bits_per_value, "snr": report.metrics.snr_db}
    return found


def study_rows(client: kvcompress.Client, study: Study) -> list[dict[str, Any]]:
    """Measures every latent of every text in every layout."""
    rows = []
    texts = [window.text for window in study.windows]
    for text in TEXTS:
        arrays, metadata = load_arrays(study.cache_file(texts.index(text)).read_bytes())
        theta = float(metadata["rope_theta"])
        for tokens in (FEW, study.setting.prefix):
            for first in LAYERS:
                layers = [
                    (
                        arrays[f"layer_{n}_key"].astype(np.float64)[0, :, :tokens],
                        arrays[f"layer_{n}_value"].astype(np.float64)[0, :, :tokens],
                    )
                    for n in range(first, first + 4)
                ]
                for name, options, values in layouts(*latents(layers), theta):
                    found = measure(client, values, options)
                    rows.append({"text": text, "tokens": tokens, "first": first})
                    rows[-1] |= {"layout": name, "codecs": found}
            say(f"{text}, {tokens} tokens")
    return rows


def gain(row: Mapping[str, Any], pair: tuple[str, str]) -> float:
    """How many times the ratio of the first codec the second has at the first's error.

    An error is made another by 6.02 dB for each bit of a value.
    """
    first, second = (row["codecs"][codec] for codec in pair)
    return float(first["bits"] / (second["bits"] - (second["snr"] - first["snr"]) / 6.02))


def page(rows: Sequence[Mapping[str, Any]], setup: Mapping[str, str]) -> str:
    """Returns the table in Markdown."""
    lines = [
        "<!-- Written by validation/latent_study.py; do not edit. -->",
        "# Latents of MLA",
        "",
        f"{setup['date']}, {setup['machine']}, kvcompress {setup['version']}:",
        f"`{setup['command']}`.",
        "",
        "Ratio against 16 bits, in the mean over texts and layers, and how many times the ratio of",
        "`ecsq` that is at the error of `ecsq`: the mean, and from the least to the most.",
        "",
        "| tokens | layout | `ecsq:0.52,0.52` | `klt:0.52,0.52` | times as much | "
        "`ecsq:contract` | `klt:contract` | times as much |",
        "| --- |" + " --- |" * 7,
    ]
    for tokens in dict.fromkeys(row["tokens"] for row in rows):
        for layout in dict.fromkeys(row["layout"] for row in rows):
            of = [row for row in rows if (row["tokens"], row["layout"]) == (tokens, layout)]
            cells = [str(tokens), layout]
            for pair in (STEPS, CONTRACT):
                cells += [
                    f"{statistics.fmean(16 / row['codecs'][codec]['bits'] for row in of):.2f}x"
                    for codec in pair
                ]
                gains = [gain(row, pair) for row in of]
                cells.append(
                    f"{statistics.fmean(gains):.3f} ({min(gains):.3f} to {max(gains):.3f})"
                )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the table and every number."""
    parsed = parse_study(ArgumentParser(description=(__doc__ or "").split("\n\n")[0]), arguments)
    quieten(parsed.threads or os.cpu_count() or 1)
    setting = setting_of(parsed)
    study = Study(setting, parsed.cache, say)
    with open_client() as client:
        setup = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "machine": machine(),
            "version": client.server_info().version,
            "command": shlex.join(words_of("latent_study.py", setting)),
            "numpy": version("numpy"),
        }
        rows = study_rows(client, study)
    folder: Path = parsed.output / "latents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latent_study.json").write_text(json.dumps({"setup": setup, "rows": rows}) + "\n")
    (folder / "latent_study.md").write_text(page(rows, setup))


if __name__ == "__main__":
    main()
