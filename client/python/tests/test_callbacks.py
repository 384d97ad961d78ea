# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Callbacks and warnings that raise, whatever they raise: the call ends and leaves no output."""

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import safetensors.numpy

import kvcompress
from fake import BlockingAio, artefact, begin, canned, compressed, fake_server, restored
from fake import safetensors as chunk

MakeClient = Callable[..., kvcompress.Client]
RAISED = (
    ValueError,
    SystemExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
    GeneratorExit,
    StopIteration,
)
TENSORS = {"x": np.zeros((1000, 1000), np.float32)}
GOOD = [begin(4), artefact(4, b"body"), artefact(0, b"head"), compressed(8)]


@pytest.fixture(params=[kvcompress.Client, BlockingAio])
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    """The class of either client."""
    kind: MakeClient = request.param
    return kind


def raiser(kind: type[BaseException]) -> Callable[..., NoReturn]:
    """Returns a callback that raises."""

    def callback(*_: object) -> NoReturn:
        raise kind("stop")

    return callback


def expected(kind: type[BaseException]) -> tuple[type[BaseException], ...]:
    """What the caller gets: what was raised. Generators turn StopIteration into another."""
    return (kind, RuntimeError) if kind is StopIteration else (kind,)


@pytest.mark.parametrize("kind", RAISED)
def test_progress_that_raises(
    make_client: MakeClient, tmp_path: Path, kind: type[BaseException]
) -> None:
    with fake_server(canned(GOOD)) as target, make_client(target, timeout=20) as client:
        for call in (
            lambda: client.compress(TENSORS, tmp_path / "out", progress=raiser(kind)),
            lambda: client.compress(bytes(9), tmp_path / "out", progress=raiser(kind)),
            lambda: client.decompress(bytes(9), tmp_path / "out", progress=raiser(kind)),
        ):
            with pytest.raises(expected(kind), match=r"(?i)stop"):
                call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", RAISED)
def test_function_for_tensors_that_raises(
    make_client: MakeClient, kind: type[BaseException]
) -> None:
    file = safetensors.numpy.save({"x": np.ones(3, np.float32)})
    answer = canned([chunk(0, file), restored(len(file))])
    with (
        fake_server(answer) as target,
        make_client(target, timeout=20) as client,
        pytest.raises(expected(kind), match=r"(?i)stop"),
    ):
        client.decompress(b"", on_tensor=raiser(kind))


def test_warning_that_is_an_error(make_client: MakeClient, tmp_path: Path) -> None:
    trailer = compressed(8)
    trailer.trailer.warnings.add(code="NO_ROLES", message="none is known")
    before = tmp_path / "before"
    before.write_bytes(b"as it was")
    with (
        fake_server(canned([*GOOD[:3], trailer])) as target,
        make_client(target, timeout=20) as client,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        for path in (tmp_path / "new", before):
            with pytest.raises(kvcompress.CompressionWarning, match="NO_ROLES"):
                client.compress(b"", path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["before"]
    assert before.read_bytes() == b"as it was"
