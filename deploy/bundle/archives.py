# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Archives whose bytes depend on nothing but their files and one date."""

import gzip
import io
import os
import stat
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Before this, a zip file has no dates.
FIRST_OF_ZIP = 315_532_800


class File(NamedTuple):
    """What an archive holds under a name."""

    content: bytes
    executable: bool = False

    @property
    def mode(self) -> int:
        """Permissions."""
        return 0o755 if self.executable else 0o644


Tree = dict[str, File]


def write_tarball(path: Path, top: str, tree: Mapping[str, File], date: int) -> None:
    """Writes a tar file, compressed by gzip.

    Args:
        path: Where to.
        top: Folder that all files are in.
        tree: Files by their names in it.
        date: Of every file, in seconds since 1970.
    """
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=date) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, file in sorted(tree.items()):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(file.content)
            member.mode = file.mode
            member.mtime = date
            member.uname = member.gname = "root"
            archive.addfile(member, io.BytesIO(file.content))


def write_zip(path: Path, tree: Mapping[str, File], date: int) -> None:
    """Writes a zip file, with the files in the order given.

    Args:
        path: Where to.
        tree: Files by name.
        date: Of every file, in seconds since 1970; one before 1980 counts as 1980.
    """
    when = time.gmtime(max(date, FIRST_OF_ZIP))[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in tree.items():
            member = zipfile.ZipInfo(name, when)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3  # Unix, whose permissions these are
            member.external_attr = (stat.S_IFREG | file.mode) << 16
            archive.writestr(member, file.content, compresslevel=6)


def rewrite_deb(path: Path, date: int, fields: Mapping[str, str]) -> None:
    """Writes a Debian package anew, with one date and one owner for all files.

    Args:
        path: The package.
        date: Of every file, in seconds since 1970.
        fields: What is added to what it says of itself, by name.
    """
    with tempfile.TemporaryDirectory(prefix="kvcompress-deb-") as folder:
        contents = Path(folder, "contents")
        subprocess.run(["dpkg-deb", "--raw-extract", path, contents], check=True)  # noqa: S607
        sums = contents / "DEBIAN" / "md5sums"
        sums.write_text("".join(sorted(sums.read_text().splitlines(keepends=True))))
        control = contents / "DEBIAN" / "control"
        lines = [f"{name}: {value}\n" for name, value in fields.items()]
        control.write_text("".join([control.read_text().rstrip("\n"), "\n", *lines]))
        for file in [contents, *contents.rglob("*")]:
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
            os.utime(file, (date, date), follow_symlinks=False)
        # One thread, since the number of them shows in the bytes.
        command = ["dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(date)}
        quiet = subprocess.DEVNULL
        subprocess.run([*command, contents, path], check=True, env=environment, stdout=quiet)
