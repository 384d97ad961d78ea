# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Bounds that are given hold, or nothing is written."""

import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import kvcompress
from fake import BlockingAio, artefact, begin, compressed, fake_server, reconstructed
from kvcompress.options import compress_options
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import quality_pb2

MakeClient = Callable[..., kvcompress.Client]
METRIC = {"min_snr_db": "snr_db", "max_rmse": "rmse", "min_token_snr_db_p1": "token_snr_db_p1"}
MISSED: dict[str, dict[str, float | None]] = {
    "layer_0_key": {"max_rmse": 0.1, "min_snr_db": 20},
    "layer_0_value": {"max_rmse": 0.2, "min_snr_db": 30, "min_token_snr_db_p1": None},
    "exact": {},
}


def judged(options: service_pb2.CompressOptions) -> Iterator[quality_pb2.TensorReport]:
    """The tensors of MISSED: each misses the bounds that it lists and that are given."""
    every = (options.thresholds, options.key_thresholds, options.value_thresholds)
    limits = {field.name: limit for bounds in every for field, limit in bounds.ListFields()}
    for name, values in MISSED.items():
        tensor = quality_pb2.TensorReport(name=name)
        tensor.verdict.missed.add(metric="max_error", value=1, bound="max_error", limit=0.5)
        for bound, value in values.items():
            if bound in limits:
                tensor.verdict.missed.add(
                    metric=METRIC[bound],
                    value=value,
                    bound=bound,
                    limit=limits[bound],
                    requested=True,
                )
        yield tensor


@pytest.fixture(params=[kvcompress.Client, BlockingAio])
def client(request: pytest.FixtureRequest) -> Iterator[kvcompress.Client]:
    """A client, of either kind, of a server that reports MISSED where tensors are asked for."""

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        options = next(requests).options
        yield from (begin(4), artefact(4, b"body"), artefact(0, b"head"))
        if options.reconstruct:
            yield reconstructed(0, b"\x02" + bytes(7) + b"{}")
        yield compressed(8, 0, list(judged(options)) if options.report_tensors else ())

    with fake_server(answer) as target, request.param(target, timeout=10) as client:
        yield client


SNR = {"layer_0_key": "snr_db", "layer_0_value": "snr_db"}
TOKENS = {"layer_0_value": "token_snr_db_p1"}


@pytest.mark.parametrize(
    ("options", "missed"),
    [
        ({"thresholds": kvcompress.Thresholds(min_snr_db=25)}, SNR),
        ({"thresholds": {"min_snr_db": 25, "max_rmse": None}}, SNR),
        ({"min_snr_db": 25}, SNR),
        ({"min_snr_db": 25, "report_tensors": False}, SNR),
        ({"key_thresholds": {"min_snr_db": 25}}, SNR),
        ({"thresholds": {"max_error": 1}, "min_token_snr_db_p1": 1}, TOKENS),
        ({"value_thresholds": {"min_token_snr_db_p1": 1}}, TOKENS),
        ({"max_error": 9, "min_cosine_similarity": 0.5}, {}),
        ({"thresholds": {}}, {}),
        ({}, {}),
    ],
)
def test_bounds_bind(
    client: kvcompress.Client, tmp_path: Path, options: dict[str, Any], missed: dict[str, str]
) -> None:
    """Those that were given, as the server judges every tensor; no other."""
    path, other = tmp_path / "out", tmp_path / "other"
    path.write_bytes(b"as it was")
    listed = options.get("report_tensors", True)
    if missed:
        with pytest.raises(kvcompress.QualityError) as caught:
            client.compress(b"", path, overwrite=True, reconstruct=other, **options)
        error = caught.value
        assert {each.tensor: each.metric for each in error.missed} == missed
        assert (error.tensor, error.reason) == (next(iter(missed)), "BOUNDS_MISSED")
        assert len(error.report.tensors) == (3 if listed else 0)
        assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"as it was"]
        with pytest.raises(kvcompress.QualityError):
            client.compress(b"", **options)
    result = client.compress(b"", path, overwrite=True, reconstruct=other, require=False, **options)
    assert len(result.report.tensors) == (3 if listed else 0)
    assert (path.read_bytes(), other.exists()) == (b"headbody", True)


def test_the_error_says_which_bound_and_what_would_hold_it(client: kvcompress.Client) -> None:
    with pytest.raises(kvcompress.QualityError) as caught:
        client.compress(b"", min_snr_db=200, max_rmse=0.01)
    error = caught.value
    assert [(each.tensor, each.bound) for each in error.missed] == [
        ("layer_0_value", "max_rmse"),
        ("layer_0_key", "max_rmse"),
        ("layer_0_key", "min_snr_db"),
        ("layer_0_value", "min_snr_db"),
    ]
    assert str(error) == (
        "2 of 3 tensors miss a bound with int4:64; worst: rmse 0.2 of tensor 'layer_0_value' is "
        'not below 0.01. Nothing was written. codec="auto" holds the bounds on every tensor; '
        "require=False returns the result as it is"
    )
    with pytest.raises(kvcompress.KVCompressError, match='codec="lossless" holds'):
        client.compress(b"", codec="auto", min_snr_db=200)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.report, copy.missed) == (str(error), error.report, error.missed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"thresholds": {"snr_db": 3}},
            r"^thresholds: there is no 'snr_db'; did you mean 'min_snr_db'\? There are max_.*p1$",
        ),
        ({"key_thresholds": {"max": 3}}, r"key_thresholds: there is no 'max', only max_rmse"),
        (
            {"min_snr": 3},
            r"options: there is no 'min_snr'; did you mean 'min_snr_db'\? .*codec, thr",
        ),
        ({"thresholds": 3}, r"a Thresholds or a mapping such as {'min_snr_db': 30}, not int"),
        ({"thresholds": {"max_rmse": "1"}}, r"max_rmse of thresholds is a number, not str"),
        ({"max_rmse": [1]}, r"max_rmse of the arguments is a number, not list"),
        ({"max_rmse": 1, "thresholds": {"max_rmse": 1}}, r"max_rmse is given twice"),
    ],
)
def test_bounds_that_there_are_not(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        compress_options(**options)


def test_every_bound_has_a_metric_and_is_an_argument() -> None:
    """So that a field that is added to the API is judged here."""
    metrics = kvcompress.Metrics.__dataclass_fields__
    for name in kvcompress.Thresholds.__dataclass_fields__:
        assert re.match("max_|min_", name)
        assert name in metrics or name[4:] in metrics
        options = compress_options(**{name: 0.5})  # type: ignore[arg-type]
        assert getattr(options.thresholds, name) == 0.5
