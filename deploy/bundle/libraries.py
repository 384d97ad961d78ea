# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The shared libraries that programs need, and the Debian packages and licences they are of."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

# Compiled into the programs: libraries that are only headers.
COMPILED_IN = ("libcli11-dev", "nlohmann-json3-dev")

# What Debian's copyright files say of the files that are distributed, as SPDX expressions. By the
# beginning of the package's name; a package that is not here is refused.
_LICENCES = {
    "libabsl": "Apache-2.0",
    "libc-ares": "MIT",
    "libc6": "LGPL-2.1-or-later",
    "libcli11": "BSD-3-Clause",
    "libfmt": "MIT",
    "libgcc-s": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgrpc": "Apache-2.0",
    "libhwy": "Apache-2.0",
    "liblz4": "BSD-2-Clause",
    "libprometheus-cpp": "MIT",
    "libprotobuf": "BSD-3-Clause",
    "libre2": "BSD-3-Clause",
    "libspdlog": "MIT",
    "libssl": "Apache-2.0",
    "libstdc++": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libxxhash": "BSD-2-Clause",
    "libyaml-cpp": "MIT",
    "libzstd": "BSD-3-Clause",
    "nlohmann-json": "MIT",
    "zlib1g": "Zlib",
}
_ABOUT = b"""\
KV Compress comes with shared libraries of Debian 12 and has some headers compiled in. Each file
here is what Debian says of one of its packages; common-licenses has the texts that they refer to.
The bill of materials lists the packages with their versions. Their sources are Debian's source
packages of these versions. The libraries are unchanged, and may be replaced in lib/kvcompress.
"""
_COMMON_LICENCE = re.compile(rb"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])")


class MissingError(Exception):
    """Something that a bundle needs is not on this machine."""


def loader_and_libraries(programs: Iterable[Path]) -> tuple[Path, dict[str, Path]]:
    """Finds what the dynamic loader of this machine loads for programs.

    Args:
        programs: Executable files.

    Returns:
        The loader, and the libraries by the name that they are asked for.

    Raises:
        MissingError: A library is not on this machine.
    """
    loader: Path | None = None
    libraries: dict[str, Path] = {}
    for program in programs:
        command = ["ldd", str(program)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            if found := re.match(r"\s*(\S+) => (.*?)(?: \(0x\w+\))?$", line):
                if not found[2].startswith("/"):
                    raise MissingError(f"{program} needs {found[1]}, which is not installed")
                libraries[found[1]] = Path(found[2])
            elif found := re.match(r"\s*(/\S+) \(0x\w+\)$", line):
                loader = Path(found[1])
    if loader is None:
        raise MissingError("the programs are not linked dynamically")
    return loader, libraries


def packages_of(files: Iterable[Path]) -> list[str]:
    """Names the Debian packages that files are of, sorted.

    Raises:
        MissingError: A file is of no package.
    """
    packages = set()
    for file in files:
        # dpkg knows a library by the name it had before /lib became a link to /usr/lib.
        real = str(file.resolve())
        for name in (real, real.removeprefix("/usr")):
            command = ["dpkg-query", "--search", name]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                packages.add(done.stdout.partition(":")[0])
                break
        else:
            raise MissingError(f"{file} is of no Debian package, so that its licence is unknown")
    return sorted(packages)


def licence_expression(packages: Iterable[str]) -> str:
    """Joins the licences of packages and of this project to one SPDX expression.

    Raises:
        MissingError: The licence of a package stands in no table here.
    """
    names = {"Apache-2.0"}
    for package in packages:
        found = [name for prefix, name in _LICENCES.items() if package.startswith(prefix)]
        if not found:
            raise MissingError(f"enter the licence of {package} in {Path(__file__).name}")
        names.update(found)
    return " AND ".join(sorted(names))


def licence_texts(packages: Iterable[str]) -> dict[str, bytes]:
    """Reads what Debian says of the licences of packages.

    Returns:
        Files by name: README; PACKAGE; common-licenses/NAME for texts that those refer to.

    Raises:
        MissingError: A text was left out when the package was installed.
    """
    texts = {"README": _ABOUT}
    for package in packages:
        texts[package] = _text(Path("/usr/share/doc", package, "copyright"))
        for name in _COMMON_LICENCE.findall(texts[package]):
            # By the name without a version: the newest, which is the one that is meant.
            common = f"common-licenses/{name.decode()}"
            if common not in texts and Path("/usr/share", common).is_file():
                texts[common] = _text(Path("/usr/share", common))
    return texts


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingError(
            f"{path} is missing: install its package again on a Debian that keeps copyright files"
        ) from None
