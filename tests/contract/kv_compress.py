# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kv-compress as a process under test, and the mistakes whose messages it must give."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.fixtures import SAMPLE

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]

# Arguments, and words of the message.
MISTAKES: list[tuple[list[object], str]] = [
    ([], "-input is required"),
    (["-output", "out"], "-input is required"),
    (["-input", SAMPLE], "-output is required"),
    (["-input="], "-input is required"),
    (["-decompress", "-input", SAMPLE], "-output is required"),
    (["-input", "absent", "-output", "out"], "read input: open .*: no such file"),
    (["-input", ".", "-output", "out"], "read input: .*directory"),
    (["-input", SAMPLE, "-output", "absent/out"], "absent/"),
    (["-bogus"], "flag provided but not defined: -bogus"),
    (["--bogus=1"], "flag provided but not defined: -bogus"),
    (["-input"], "flag needs an argument: -input"),
    (["-group-size", "x"], "-input is required|invalid value .*group-size"),
    (["-input", SAMPLE, "-output", "out", "-group-size", "63"], "group.size.*32, 64 or 128"),
    (
        ["-input", SAMPLE, "-output", "out", "-group-size", "x"],
        'invalid value "x" .*group-size',
    ),
    (["-input", SAMPLE, "-output", "out", "-sparsity", "2"], "sparsity.*0 to 1"),
    (["-input", SAMPLE, "-output", "out", "-sparsity", "-1"], "sparsity.*0 to 1"),
    (["-input", SAMPLE, "-output", "out", "-sparsity", "nan"], "sparsity"),
    (["-input", SAMPLE, "-output", "out", "-codec", "bogus"], "bogus"),
    (["-input", SAMPLE, "-output", "out", "-preset", "bogus"], "preset"),
    (["-input", SAMPLE, "-output", "out", "-metrics", "some"], "metrics.*basic or full"),
    (["-info", SAMPLE, "-metrics", "basic"], "-metrics needs compression"),
    (["-input", SAMPLE, "-output", "out", "stray"], "stray"),
    (["-input", SAMPLE, "-output", "out", "-tokens", "0:1"], "-tokens.*-decompress"),
    (["-info", SAMPLE, "-input", SAMPLE], "-input"),
    (["-verify", SAMPLE, "-keys", "*"], "-keys needs compression, -metrics-only or -info"),
    (["-info", SAMPLE, "-values", "no*"], 'none of 60 tensors has a name that "no\\*" matches'),
]


def words_of(value: object) -> str:
    """Names a test after its arguments."""
    return "_".join(Path(str(v)).name for v in value) if isinstance(value, list) else ""


@pytest.fixture
def run(bin_dir: Path, tmp_path: Path) -> Run:
    """Runs kv-compress in an empty folder, without a server in the environment."""

    def run(
        *arguments: object, stdin: bytes | None = None, **environment: str
    ) -> "subprocess.CompletedProcess[bytes]":
        variables = {k: v for k, v in os.environ.items() if not k.startswith("KVCOMPRESS_")}
        return subprocess.run(
            [str(bin_dir / "kv-compress"), *map(str, arguments)],
            input=b"" if stdin is None else stdin,
            capture_output=True,
            cwd=tmp_path,
            env={**variables, **environment},
            timeout=60,
        )

    return run


@pytest.fixture
def artefact(run: Run, tmp_path: Path) -> Path:
    """The sample, compressed."""
    path = tmp_path / "artefact"
    succeed(run("-input", SAMPLE, "-output", path))
    return path


def succeed(done: "subprocess.CompletedProcess[bytes]") -> dict[str, Any]:
    """The JSON of a run that went well."""
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def refuse(done: "subprocess.CompletedProcess[bytes]", words: str) -> None:
    """Checks that a run failed, said why on stderr, and put nothing on stdout."""
    message = done.stderr.decode()
    assert done.returncode == 1, message
    assert message.startswith("Error: "), message
    assert re.search(words, message), message
    assert done.stdout == b""


def bits(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Type, shape and bytes of every tensor of a safetensors file."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            data[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


def open_files(process: int) -> list[str]:
    """Where the descriptors of a process lead; a file without a name ends with "(deleted)"."""
    links = Path(f"/proc/{process}/fd").iterdir()
    return [str(link.readlink()) for link in links if link.is_symlink()]
