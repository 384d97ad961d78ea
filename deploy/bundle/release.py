# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the files of a release from what was built; deploy/release calls it."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from archives import File, Tree, rewrite_deb, write_tarball
from libraries import (
    COMPILED_IN,
    MissingError,
    licence_expression,
    licence_texts,
    loader_and_libraries,
    packages_of,
)
from platform_wheel import write_wheel

_REPOSITORY = Path(__file__).resolve().parents[2]
_PROGRAMS = ("kv-compress", "kv-compressd")
_FOLDER = "lib/kvcompress"
# Folders of the Debian package that wheel and tarball have too: manual pages, completions.
_PAGES = ("bash-completion", "fish", "man", "zsh")
# Files of the repository that the tarball has too.
_DOCUMENTS = ("CHANGELOG.md", "LICENSE", "server/OPERATIONS.md")


def main() -> None:
    """Writes wheel, tarball, Debian packages and bill of materials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True, help="folder with both programs")
    parser.add_argument("--debs", type=Path, required=True, help="folder with packages of CPack")
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--date", type=int, required=True, help="in seconds since 1970")
    arguments = parser.parse_args()
    try:
        _write(arguments)
    except MissingError as error:
        sys.exit(f"error: {error}")


def _write(arguments: argparse.Namespace) -> None:
    version, date, out = arguments.version, arguments.date, arguments.out
    programs = {name: arguments.bin / name for name in _PROGRAMS}
    loader, libraries = loader_and_libraries(programs.values())
    contained = packages_of([loader, *libraries.values()])
    packages = sorted({*contained, *COMPILED_IN})
    licences = licence_texts(packages)
    command = [str(_REPOSITORY / "deploy/sbom"), "--only", " ".join(contained)]
    command += [version, arguments.revision, "/var/lib/dpkg", *COMPILED_IN]
    bill = subprocess.run(command, capture_output=True, check=True).stdout
    (out / f"kvcompress-{version}.spdx.json").write_bytes(bill)

    tree = _runnable(programs, loader, libraries)
    pages = _pages(arguments.debs)
    client = _REPOSITORY / "client/python"
    expression = licence_expression(packages)
    write_wheel(client, out, tree, pages, licences, expression, bill, date)

    tree |= pages
    share = "share/doc/kvcompress"
    tree |= {f"{share}/licenses/{name}": File(text) for name, text in licences.items()}
    tree[f"{share}/sbom.spdx.json"] = File(bill)
    for document in _DOCUMENTS:
        path = _REPOSITORY / document
        tree[f"{share}/{path.name}"] = File(path.read_bytes())
    top = f"kvcompress-{version}-linux-x86_64"
    write_tarball(out / f"{top}.tar.gz", top, tree, date)

    for deb in sorted(arguments.debs.glob("*.deb")):
        target = out / deb.name
        target.write_bytes(deb.read_bytes())
        of_programs = deb.name.startswith("kvcompress_")
        fields = {"Static-Built-Using": _versions(COMPILED_IN)} if of_programs else {}
        rewrite_deb(target, date, fields)


def _runnable(programs: dict[str, Path], loader: Path, libraries: dict[str, Path]) -> Tree:
    """Returns programs that run wherever the tree is unpacked, with all that they load."""
    launcher = (Path(__file__).parent / "launcher").read_bytes()
    tree = {}
    for name, program in programs.items():
        tree[f"bin/{name}"] = File(launcher, executable=True)
        tree[f"{_FOLDER}/{name}"] = File(loader.read_bytes(), executable=True)
        tree[f"{_FOLDER}/{name}.program"] = File(_stripped(program), executable=True)
    for name, library in libraries.items():
        tree[f"{_FOLDER}/{name}"] = File(library.read_bytes())
    return tree


def _pages(debs: Path) -> Tree:
    """Returns the manual pages and completions of both programs, below share."""
    [deb] = debs.glob("kvcompress_*.deb")
    with tempfile.TemporaryDirectory(prefix="kvcompress-pages-") as folder:
        subprocess.run(["dpkg-deb", "--extract", deb, folder], check=True)  # noqa: S607
        root = Path(folder, "usr")
        paths = [path for name in _PAGES for path in (root / "share" / name).rglob("*")]
        pages = {
            str(path.relative_to(root)): File(path.read_bytes())
            for path in sorted(paths)
            if path.is_file()
        }
    if not pages:
        raise MissingError(f"{deb} has no manual pages")
    return pages


def _versions(packages: tuple[str, ...]) -> str:
    """Returns installed packages with their versions, as a package refers to others."""
    command = ["dpkg-query", "--show", "--showformat", "${Package} (= ${Version})\n", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return ", ".join(done.stdout.splitlines())


def _stripped(program: Path) -> bytes:
    with tempfile.NamedTemporaryFile(prefix="kvcompress-") as file:
        subprocess.run(["strip", "-o", file.name, program], check=True)  # noqa: S607
        return Path(file.name).read_bytes()


if __name__ == "__main__":
    main()
