# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Clients name files by themselves where they can, and send them where they cannot."""

import asyncio
import json
import os
import re
import subprocess
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import kvcompress
from oracle.server import Server, running_server


class Place:
    """A directory that a server shares, with a cache in it, and another one."""

    def __init__(self, server: Server, root: Path, sample: bytes) -> None:
        """Puts the cache into both."""
        self.server, self.shared, self.other = server, root / "shared", root / "other"
        for folder in (self.shared, self.other):
            folder.mkdir(exist_ok=True)
            (folder / "in").write_bytes(sample)

    def named(self) -> int:
        """How many calls have named files."""
        host, port = self.server.metrics_address.split(":")
        connection = HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        counts = re.findall(r'kvcompress_requests_total\{method="\w+File"\} (\d+)', page)
        assert len(counts) == 2
        return sum(map(int, counts))


@pytest.fixture
def place(bin_dir: Path, tmp_path: Path, sample: bytes) -> Iterator[Place]:
    """A server that shares a directory."""
    (tmp_path / "shared").mkdir()
    with running_server(bin_dir, "--shared-directory", f"{tmp_path}/shared") as server:
        yield Place(server, tmp_path, sample)


def command(bin_dir: Path, *arguments: str, **variables: str) -> str:
    """Runs kv-compress; what it printed."""
    done = subprocess.run(
        [str(bin_dir / "kv-compress"), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line(place: Place, bin_dir: Path) -> None:
    """Names files in the directory, over the Unix socket alone; with the same result."""
    target, shared, other = place.server.unix_target, place.shared, place.other
    outputs = {}
    for number, (address, source, output, names) in enumerate(
        [
            (target, shared / "in", shared / "a", 1),
            (target, other / "in", shared / "b", 0),
            (target, shared / "in", other / "c", 0),
            (place.server.target, shared / "in", shared / "d", 0),
            ("", shared / "in", shared / "e", 0),
        ]
    ):
        before = place.named()
        flags = ["-codec", "int4", *(["-server", address] if address else [])]
        printed = command(bin_dir, *flags, "-input", str(source), "-output", str(output))
        assert place.named() - before == names, number
        report = json.loads(printed)
        report.pop("processing_time_ms", None)
        outputs[output.read_bytes()] = {k: v for k, v in report.items() if "time" not in k}
    assert len(outputs) == 1
    before = place.named()
    back = ["-server", target, "-decompress", "-input", f"{shared}/a", "-output", f"{shared}/back"]
    command(bin_dir, *back)
    command(bin_dir, "-server", target, "-verify", f"{shared}/a")
    assert place.named() == before + 2
    command(bin_dir, "-decompress", "-input", f"{shared}/a", "-output", f"{other}/back")
    assert (shared / "back").read_bytes() == (other / "back").read_bytes()


def test_a_gate_holds_files_back(place: Place, bin_dir: Path) -> None:
    """A bound that is missed leaves no file, in the shared directory neither."""
    done = subprocess.run(
        [
            *(str(bin_dir / "kv-compress"), "-server", place.server.unix_target),
            *("-codec", "int4", "-min-snr-db", "90"),
            *("-input", f"{place.shared}/in", "-output", f"{place.shared}/out"),
        ],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert not (place.shared / "out").exists()


def test_a_directory_that_is_elsewhere_for_the_client(
    place: Place, bin_dir: Path, tmp_path: Path
) -> None:
    """As in two containers: the client says where it sees it, and is checked."""
    seen = tmp_path / "mount"
    seen.symlink_to(place.shared)
    flags = ["-server", place.server.unix_target, "-input", f"{seen}/in", "-output", f"{seen}/a"]
    flags += ["-force"]
    before = place.named()
    command(bin_dir, *flags, KVCOMPRESS_SHARED_DIRECTORY=str(seen))
    command(bin_dir, *flags, "-shared-directory", str(seen))
    assert place.named() == before + 2
    # Another directory of that name: files are sent.
    command(bin_dir, *flags, "-shared-directory", str(place.other))
    assert place.named() == before + 2


def test_python(place: Place, tmp_path: Path) -> None:
    """Both clients; what cannot be named is sent."""
    target, shared = place.server.unix_target, place.shared
    seen: list[int] = []
    with kvcompress.Client(target) as client:
        assert client.server_info().shared_directory == str(shared)
        result = client.compress(shared / "in", shared / "a", progress=seen.append)
        assert sum(seen) == (shared / "in").stat().st_size
        assert result.path == shared / "a"
        assert result.report.tensors
        assert client.decompress(shared / "a", shared / "back").path == shared / "back"
        client.decompress(shared / "a", verify_only=True)
        assert place.named() == 3
        sent = client.compress(shared / "in").artefact
        assert sent == (shared / "a").read_bytes()
        client.compress(place.other / "in", shared / "b")
        client.compress(shared / "in", shared / "c", reconstruct=True)
        assert place.named() == 3

    async def both() -> None:
        async with kvcompress.aio.Client(target) as client:
            await asyncio.gather(
                client.compress(shared / "in", shared / "d"),
                client.decompress(shared / "a", shared / "back", overwrite=True),
            )

    asyncio.run(both())
    assert place.named() == 5
    with kvcompress.Client(target, shared_directory=tmp_path) as client:
        client.compress(shared / "in", shared / "e")
    assert place.named() == 5
    artefacts = {(shared / name).read_bytes() for name in "abcde"}
    assert len(artefacts) == 1


def test_python_falls_back(place: Place) -> None:
    """Where naming the file fails its bytes are sent; other errors are the call's."""
    with kvcompress.Client(place.server.unix_target) as client:
        with pytest.raises(FileNotFoundError):
            client.compress(place.shared / "none", place.shared / "a")
        with pytest.raises(FileNotFoundError):
            client.compress(place.shared / "in", place.shared / "none/a")
        (place.shared / "bad").write_bytes(b"12345678{}")
        with pytest.raises(kvcompress.InvalidArgumentError):
            client.compress(place.shared / "bad", place.shared / "a")
    assert not (place.shared / "a").exists()


def raising(kind: type[BaseException], after: int) -> Callable[[int], None]:
    """Returns a callback that raises when it was called with so many bytes."""
    told = [0]

    def advance(size: int) -> None:
        told[0] += size
        if told[0] >= after:
            raise kind

    return advance


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, CancelledError])
def test_a_callback_that_raises_leaves_no_output(place: Place, kind: type[BaseException]) -> None:
    """Neither at the first piece nor at the last, when the server has written all of it."""
    source, shared = place.shared / "in", place.shared
    size = source.stat().st_size
    with kvcompress.Client(place.server.unix_target) as client:
        client.compress(source, shared / "a")
        before = {path.name: path.read_bytes() for path in shared.iterdir()}
        artefact = shared / "a"
        for after in (0, size):
            for path in (shared / "new", shared / "a"):
                with pytest.raises(kind):
                    client.compress(
                        source, path, overwrite=True, codec="int8", progress=raising(kind, after)
                    )
        for after in (0, artefact.stat().st_size):
            for reuse in (False, True):
                with pytest.raises(kind):
                    client.decompress(
                        artefact, shared / "new", progress=raising(kind, after), reuse=reuse
                    )
    assert {path.name: path.read_bytes() for path in shared.iterdir()} == before


def test_a_warning_that_is_an_error_leaves_no_output(place: Place) -> None:
    cache = safetensors.numpy.save({"x": np.ones((1, 2, 8, 64), np.float32)})
    (place.shared / "unnamed").write_bytes(cache)
    (place.shared / "out").write_bytes(b"as it was")
    with kvcompress.Client(place.server.unix_target) as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        before = place.named()
        for path in (place.shared / "new", place.shared / "out"):
            with pytest.raises(kvcompress.CompressionWarning):
                client.compress(place.shared / "unnamed", path, overwrite=True, codec="klt")
        assert place.named() == before + 2
    assert sorted(path.name for path in place.shared.iterdir()) == ["in", "out", "unnamed"]
    assert (place.shared / "out").read_bytes() == b"as it was"


def test_an_output_that_appears_meanwhile_is_kept(place: Place) -> None:
    path = place.shared / "out"
    with (
        kvcompress.Client(place.server.unix_target) as client,
        pytest.raises(kvcompress.AlreadyExistsError),
    ):
        client.compress(place.shared / "in", path, progress=lambda size: path.write_bytes(b"other"))
    assert path.read_bytes() == b"other"
    assert sorted(each.name for each in place.shared.iterdir()) == ["in", "out"]


def test_without_a_directory(server: Server, tmp_path: Path, sample: bytes) -> None:
    """A server that shares none is sent the bytes."""
    (tmp_path / "in").write_bytes(sample)
    with kvcompress.Client(server.unix_target) as client:
        assert client.server_info().shared_directory is None
        client.compress(tmp_path / "in", tmp_path / "out")
        assert client.decompress(tmp_path / "out", verify_only=True).report.tensor_count == 60
