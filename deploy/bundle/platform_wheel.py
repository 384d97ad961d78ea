# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The wheel for one platform: the Python package with the native programs."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from archives import FIRST_OF_ZIP, File, Tree, write_zip
from libraries import MissingError

# Any glibc since 2.17, of 2012: the programs use no library of the system, not even that one.
PLATFORM = "manylinux_2_17_x86_64"


def write_wheel(
    client: Path,
    folder: Path,
    programs: Mapping[str, File],
    data: Mapping[str, File],
    licences: Mapping[str, bytes],
    expression: str,
    bill: bytes,
    date: int,
) -> Path:
    """Writes the wheel.

    Args:
        client: The source of the Python package.
        folder: Where to.
        programs: Files by name, which become those of the folder `kvcompress`.
        data: Files by name, which are installed into the environment's folder.
        licences: Texts by name, of what the programs come with.
        expression: The licences of all of it, in SPDX.
        bill: The bill of materials, SPDX in JSON.
        date: Of every file, in seconds since 1970.

    Returns:
        The file.

    Raises:
        MissingError: The Python package could not be built.
    """
    tree = _pure_wheel(client, date)
    [information] = {name.split("/")[0] for name in tree if name.endswith(".dist-info/METADATA")}
    texts = {f"bundled/{name}": File(text) for name, text in licences.items()}
    _say_what_it_is(tree, information, expression, sorted(texts))
    tree |= {f"kvcompress/{name}": file for name, file in programs.items()}
    distribution = information.removesuffix(".dist-info")
    tree |= {f"{distribution}.data/data/{name}": file for name, file in data.items()}
    tree |= {f"{information}/licenses/{name}": file for name, file in texts.items()}
    tree[f"{information}/sboms/kvcompress.spdx.json"] = File(bill)
    # The record comes last, and the rest of .dist-info before it.
    tree = dict(sorted(tree.items(), key=lambda item: (item[0].startswith(information), item[0])))
    tree[f"{information}/RECORD"] = File(_record(tree, f"{information}/RECORD"))
    path = folder / f"{distribution}-py3-none-{PLATFORM}.whl"
    write_zip(path, tree, date)
    return path


def _pure_wheel(client: Path, date: int) -> Tree:
    """Returns the files of the wheel that setuptools makes, but for the record."""
    with tempfile.TemporaryDirectory(prefix="kvcompress-wheel-") as folder:
        source = Path(folder, "source")
        ignored = shutil.ignore_patterns("__pycache__", "bin", "build", "*.egg-info")
        shutil.copytree(client, source, ignore=ignored)
        program = "from setuptools import build_meta; build_meta.build_wheel('dist')"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(max(date, FIRST_OF_ZIP))}
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=source,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise MissingError(f"setuptools made no wheel: {done.stderr[-2000:]}")
        [path] = (source / "dist").glob("*.whl")
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if not name.endswith("/RECORD")]
            return {name: File(wheel.read(name)) for name in names}


def _say_what_it_is(tree: Tree, information: str, expression: str, texts: list[str]) -> None:
    """Changes the platform and the licences in the metadata."""
    for name, replaced in (
        ("WHEEL", {"Root-Is-Purelib": ["false"], "Tag": [f"py3-none-{PLATFORM}"]}),
        ("METADATA", {"License-Expression": [expression], "License-File": ["LICENSE", *texts]}),
    ):
        key = f"{information}/{name}"
        head, blank, body = tree[key].content.decode().partition("\n\n")
        lines = []
        for line in head.splitlines():
            field = line.partition(":")[0]
            if field in replaced:
                lines += [f"{field}: {value}" for value in replaced.pop(field)]
            else:
                lines.append(line)
        if replaced:
            raise MissingError(f"setuptools wrote no {', '.join(replaced)} in {name}")
        tree[key] = File(("\n".join(lines) + blank + body).encode())


def _record(tree: Mapping[str, File], name: str) -> bytes:
    """Returns the names of all files with their digests and lengths."""
    lines = []
    for path, file in tree.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.content).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(file.content)}\n")
    return "".join([*lines, f"{name},,\n"]).encode()
