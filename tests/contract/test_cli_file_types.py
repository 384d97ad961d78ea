# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Files of other kinds: kv-compress says what they are, and what to do."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from kv_compress import Run, refuse, succeed

from kvcompress import Client, InvalidArgumentError
from oracle.fixtures import SAMPLE


def numpy_array() -> bytes:
    """An .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(4))
    return buffer.getvalue()


def numpy_arrays() -> bytes:
    """An .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, key=np.zeros(4))
    return buffer.getvalue()


def zipped(name: str) -> bytes:
    """A ZIP archive with one member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"content")
    return buffer.getvalue()


def tarred() -> bytes:
    """A tar archive with one member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("cache.safetensors"))
    return buffer.getvalue()


# What each begins with, and words of what is said of it.
TYPES: dict[str, tuple[bytes, str]] = {
    "npy": (numpy_array(), r"a NumPy array \(.npy\).*safetensors.numpy.save_file"),
    "npz": (numpy_arrays(), r"an archive of NumPy arrays \(.npz\)"),
    "pt": (zipped("archive/data.pkl"), "a PyTorch checkpoint.*safetensors.torch.save_file"),
    "zip": (zipped("cache.safetensors"), "a ZIP archive"),
    "pickle": (pickle.dumps([0.5] * 9, protocol=5), "a Python pickle"),
    "pickle_2": (pickle.dumps([0.5] * 9, protocol=2), "a Python pickle, as PyTorch wrote"),
    "gguf": (b"GGUF\x03\0\0\0" + bytes(64), "a GGUF file, which has weights"),
    "slot": (b"qsgg\x02\0\0\0" + bytes(64), "a saved slot of llama.cpp.*llama_cpp compress"),
    "gzip": (gzip.compress(b"x" * 99, mtime=0), "compressed with gzip.*decompress it first"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x60" + bytes(64), "compressed with Zstandard"),
    "xz": (lzma.compress(b"x" * 99), "compressed with xz"),
    "bzip2": (bz2.compress(b"x" * 99), "compressed with bzip2"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file"),
    "tar": (tarred(), "a tar archive"),
    "json": (json.dumps({"model_type": "llama"}, indent=2).encode(), "the file is JSON"),
    "index": (json.dumps({"weight_map": {}}).encode(), "index of a model in several files"),
    "html": (b"<!DOCTYPE html><title>404</title>", "an HTML page"),
    "text": ("notes, not a c\u00e4che\n".encode() * 40, "the file is text.*name the .safetensors"),
    "script": (b"#!/bin/{sh}\n", "the file is text"),
    "zeros": (bytes(600), "zeros from its first byte, perhaps of a copy that failed"),
    "dump": (bytes(range(7, 256)) * 3, "the file is binary data of no known type"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
}


@pytest.mark.parametrize("name", TYPES)
def test_files_of_other_kinds(run: Run, tmp_path: Path, name: str) -> None:
    """As a file and as a stream, whatever is to be done with it."""
    data, words = TYPES[name]
    (tmp_path / "in").write_bytes(data)
    words += "|" + words.replace(".*", "(.|\n)*")
    refuse(run("-input", "in", "-metrics-only"), words)
    refuse(run("-input", "-", "-metrics-only", stdin=data), words)
    refuse(run("-info", "in"), words)
    refuse(run("-decompress", "-input", "in", "-output", "out"), words)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("name", TYPES)
def test_python_says_of_files_what_the_command_line_says(
    client: Client, run: Run, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "in"
    path.write_bytes(TYPES[name][0])
    said = run("-input", "in", "-metrics-only").stderr.decode()
    for call in (client.compress, client.measure, client.decompress):
        with pytest.raises(InvalidArgumentError) as caught:
            call(path)
        assert caught.value.reason == "INVALID_HEADER"
        assert caught.value.message in said


@pytest.mark.parametrize("name", ["text", "zeros", "dump", "gzip"])
def test_verify_reports_files_of_other_kinds(run: Run, tmp_path: Path, name: str) -> None:
    """As artefacts that are no good, whether they come as a file or as a stream."""
    data = TYPES[name][0]
    (tmp_path / "in").write_bytes(data)
    for done in (run("-verify", "in"), run("-verify", "-", stdin=data)):
        assert done.returncode == 1
        answer = json.loads(done.stdout)
        assert (answer["verified"], answer["reason"]) == (False, "INVALID_HEADER")
        assert "not a safetensors file" in answer["message"]


def test_damage_is_not_another_kind(run: Run, tmp_path: Path) -> None:
    """Neither of the first character of a header nor of its length."""
    for position, words in ((8, "does not begin with '{'"), (7, "announces a header of")):
        data = bytearray(SAMPLE.read_bytes())
        data[position] = 0xFF
        (tmp_path / "in").write_bytes(data)
        refuse(run("-input", "in", "-metrics-only"), words)


def test_training_names_the_file(run: Run, tmp_path: Path) -> None:
    """A profile is trained from several."""
    (tmp_path / "in").write_bytes(numpy_array())
    refuse(run("-train-profile", "p", "-model-label", "m", SAMPLE, "in"), "in: .*a NumPy array")


def test_empty_files_and_folders(run: Run, tmp_path: Path) -> None:
    """Are called that; -verify still reports damage."""
    (tmp_path / "in").touch()
    for flags in (("-metrics-only", "-input"), ("-info",)):
        refuse(run(*flags, "in"), "the file is empty: .*ends after 0 of the 8 bytes")
    done = run("-verify", "in")
    assert done.returncode == 1
    assert json.loads(done.stdout)["reason"] == "TRUNCATED"
    assert b"the file is empty" in done.stderr
    refuse(run("-metrics-only", "-input", "."), "read .: is a directory: .*without -input")


def test_headers_that_only_look_like_other_kinds(run: Run, tmp_path: Path) -> None:
    """The length of a sound header may have the first bytes of any of them."""
    header = json.dumps({"x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode()
    for magic in (b"\x1f\x8b\x08", b"\x80\x02"):
        size = int.from_bytes(magic, "little")
        padded = header.ljust(size)
        (tmp_path / "in").write_bytes(size.to_bytes(8, "little") + padded)
        assert succeed(run("-input", "in", "-metrics-only"))["tensor_count"] == 1
