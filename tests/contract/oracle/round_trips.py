# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Layouts by types by codecs, there and back, with errors as NumPy finds them.

    KVCOMPRESS_BIN_DIR=bin PYTHONPATH=client/python/src:tests/contract PYTHON -m oracle.round_trips

writes results/round_trips.md next to the tests. PYTHON is that of tests/run.
"""

import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvcompress import Client, TensorReport
from oracle import layouts, metrics
from oracle.server import running_server
from oracle.source import NUMBERS, Tensor, read, tensor, write

RESULTS = Path(__file__).parents[1] / "results" / "round_trips.md"


@dataclass(frozen=True)
class RoundTrip:
    """One tensor in a layout, coded and restored, with what the service and NumPy say.

    Attributes:
        exact: Whether it came back bit for bit.
        reports: What the service says of each view.
        found: What NumPy finds of each view.
        whole: What NumPy finds of all of the tensor.
    """

    dtype: str
    exact: bool
    reports: list[TensorReport]
    found: list[metrics.Metrics]
    whole: metrics.Metrics


def cache(layout: str, *dtypes: str) -> bytes:
    """A file with a tensor of each type in a layout, and one that is no number."""
    rng = np.random.default_rng(len(layout))
    shape = layouts.LAYOUTS[layout].shape
    tensors = [tensor(dtype, dtype, rng.standard_normal(shape)) for dtype in dtypes]
    return write([*tensors, Tensor("table", "I32", (4,), bytes(16))], {"layout": layout})


def codecs_of(client: Client) -> list[str]:
    """All codecs that the service lists."""
    return [codec.name for codec in client.server_info().codecs]


def round_trips(client: Client, layout: str, codec: str) -> Iterator[RoundTrip]:
    """Codes and restores a tensor of every type that is a number."""
    source = cache(layout, *NUMBERS)
    got = client.compress(source, codec=codec)
    back = client.decompress(got.artefact or b"").safetensors or b""
    reports = [each for each in got.report.tensors if each.layout]
    for before, after in zip(read(source)[0], read(back)[0], strict=True):
        if before.dtype not in NUMBERS:
            continue
        views = [layouts.split(each, layout)[0] for each in (before, after)]
        pairs = [(x.exact, y.exact) for (_, x), (_, y) in zip(*views, strict=True)]
        own, reports = reports[: len(pairs)], reports[len(pairs) :]
        yield RoundTrip(
            before.dtype,
            before == after,
            own,
            [metrics.measure([pair]) for pair in pairs],
            metrics.measure([(before.exact, after.exact)]),
        )


def cell(trip: RoundTrip) -> str:
    """Of the table."""
    if trip.exact:
        return "exact"
    snr = trip.whole.snr_db
    return f"{trip.whole.rmse:.2g}, {'exact' if snr is None else f'{snr:.1f} dB'}"


def main() -> None:
    """Writes the table."""
    warnings.simplefilter("ignore")
    with running_server(Path(os.environ["KVCOMPRESS_BIN_DIR"])) as server:
        client = Client(server.target)
        page = table(client)
        client.close()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(page)


def table(client: Client) -> str:
    """Returns the page."""
    codecs = codecs_of(client)
    lines = [
        "<!-- Written by tests/contract/oracle/round_trips.py; do not edit. -->",
        "# There and back, by layout, type and codec",
        "",
        "Small tensors of normally distributed numbers, coded, and restored to their layout. A",
        "cell has the RMSE and the SNR that NumPy finds, or `exact` where no bit differs.",
        "`test_layouts.py` holds what the service reports of every view against these numbers.",
        "",
        f"| layout | type | {' | '.join(f'`{codec}`' for codec in codecs)} |",
        "| --- | --- |" + " --- |" * len(codecs),
    ]
    for layout in layouts.LAYOUTS:
        by_codec = [list(round_trips(client, layout, codec)) for codec in codecs]
        for trips in zip(*by_codec, strict=True):
            cells = [f"`{layout}`", trips[0].dtype, *(cell(trip) for trip in trips)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def agrees(reported: float | None, found: float | None) -> bool:
    """Whether both are the same number but for the order of sums, or both are none."""
    if reported is None or found is None:
        return reported is found
    return math.isclose(reported, found, rel_tol=1e-6, abs_tol=1e-12)


if __name__ == "__main__":
    main()
