# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Caches in declared layouts: the service, the oracle and kvcompress.payload agree."""

import numpy as np
import pytest

from kvcompress import Client, InvalidArgumentError, load_arrays, payload
from oracle import encoder, layouts, round_trips
from oracle.round_trips import cache
from oracle.source import NUMBERS, read, tensor, write

CODECS = [("int4", 64), ("int8", 32), ("int4-hadamard", 64), ("int4-kivi", 32), ("sparse", 64)]


def arrays(data: bytes) -> dict[str, bytes]:
    """Bytes of the tensors that kvcompress.payload reads."""
    return {name: array.tobytes() for name, array in payload.read(data).items()}


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_the_oracle_agrees(client: Client, layout: str) -> None:
    source = cache(layout, *NUMBERS)
    for codec, group in CODECS:
        want = encoder.encode(source, group, codec=codec)
        got = client.compress(source, codec={"name": codec, "group_size": group})
        assert got.artefact == want.data
        assert client.decompress(want.data).safetensors == want.restored
        restored, _ = read(want.restored)
        assert arrays(want.data) == {each.name: each.data for each in restored}


@pytest.mark.filterwarnings("ignore:NO_ROLES")
@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@pytest.mark.parametrize("codec", ["lossless", "lossless+zstd", "ecsq", "klt", "auto", "int4+lz4"])
def test_every_codec_comes_back(client: Client, layout: str, codec: str) -> None:
    source = cache(layout, *NUMBERS)
    plain, _ = read(source)
    got = client.compress(write(plain), codec=codec, layout=layout, reconstruct=True)
    assert got.artefact is not None
    back = client.decompress(got.artefact).safetensors
    assert back == got.reconstructed
    restored, _ = read(back or b"")
    assert arrays(got.artefact) == {each.name: each.data for each in restored}
    if codec.startswith("lossless"):
        assert restored == plain
    for before, after in zip(plain, restored, strict=True):
        assert (before.name, before.dtype, before.shape) == (after.name, after.dtype, after.shape)
    views = [each for each in got.report.tensors if each.layout]
    assert {each.layout for each in views} == {layouts.LAYOUTS[layout].text}
    error = max(
        np.abs(a.exact - b.exact).max()
        for a, b in zip(plain, restored, strict=True)
        if a.dtype in NUMBERS
    )
    assert got.report.metrics.max_error == pytest.approx(error, rel=1e-9)


@pytest.mark.filterwarnings("ignore:NO_ROLES")
@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_errors_are_as_reported(client: Client, layout: str) -> None:
    """RMSE, SNR, the largest error and the cosine of every view, of every type and codec."""
    for codec in round_trips.codecs_of(client):
        for trip in round_trips.round_trips(client, layout, codec):
            assert trip.exact or codec != "lossless"
            assert len(trip.reports) == len(trip.found), codec
            for report, found in zip(trip.reports, trip.found, strict=True):
                said = report.metrics
                assert report.dtype == trip.dtype, codec
                assert round_trips.agrees(said.rmse, found.rmse), codec
                assert round_trips.agrees(said.snr_db, found.snr_db), codec
                assert round_trips.agrees(said.max_error, found.max_error), codec
                cosine = pytest.approx(found.cosine_similarity, abs=1e-9)
                assert said.cosine_similarity == cosine, codec


def test_tokens_are_given_back_in_the_layout(client: Client) -> None:
    source = cache("2ltd:heads=2", "BF16")
    artefact = client.compress(source, codec="lossless").artefact
    assert artefact is not None
    part = client.decompress(artefact, tokens=(3, 9), tensors=["BF16"]).safetensors
    got, _ = load_arrays(part or b"")
    whole, _ = load_arrays(source)
    assert got["BF16"].tobytes() == whole["BF16"][:, :, 3:9].tobytes()


def test_a_layout_that_does_not_fit_is_refused(client: Client) -> None:
    source = write([tensor("a", "BF16", np.zeros((5, 8)))])
    for layout, reason in [
        ("thd", "LAYOUT_MISMATCH"),
        ("td", "LAYOUT_MISMATCH"),
        ("nhd", "INVALID_LAYOUT"),
    ]:
        with pytest.raises(InvalidArgumentError) as caught:
            client.compress(source, layout=layout)
        assert caught.value.reason == reason
