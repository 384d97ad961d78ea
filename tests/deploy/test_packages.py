# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What is released: `cmake --install`, the Debian packages, the unit of systemd."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from containers import IMAGE, Podman
from documents import claimed_blocks, claimed_line, run_line, substituted
from server_process import Start
from tools import REPOSITORY, Fact, Tool, output

SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
BUILD = REPOSITORY / "build" / "release"
UNIT = REPOSITORY / "deploy" / "packaging" / "kv-compressd.service"
# Of systemd's own measure, from 0, nothing to attack, to 10. What is left is the network.
MOST_EXPOSED = 2.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def built() -> Path:
    """The release build, with the library."""
    if "KVCOMPRESS_BIN_DIR" in os.environ:
        pytest.skip("KVCOMPRESS_BIN_DIR names other binaries than those of the release build")
    output(REPOSITORY / "deploy" / "build", "--binaries-only")
    return BUILD


@pytest.fixture(scope="module")
def packages(built: Path, tmp_path_factory: pytest.TempPathFactory, fact: Fact) -> dict[str, Path]:
    """The Debian packages by name."""
    if shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("no dpkg-shlibdeps, of the Debian package dpkg-dev")
    folder = tmp_path_factory.mktemp("machine") / "packages"
    run_line(substituted(claimed_line("packages"), **{"-B packages": f"-B {folder}"}), seconds=900)
    found = {path.name.partition("_")[0]: path for path in folder.glob("*.deb")}
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in found.values())
    fact(f"Debian packages: {sizes}")
    return found


def test_versions_agree() -> None:
    """Of CMake, of the library, of the Python package, of the image and of the manifests."""
    [version] = re.findall(r"project\(kvcompress VERSION (\S+)", text("CMakeLists.txt"))
    for file, pattern in (
        ("core/include/kvcompress/version.h", 'kVersion\\[\\] = "(.*)"'),
        ("client/python/src/kvcompress/_version.py", '__version__ = "(.*)"'),
        ("Dockerfile", "ARG VERSION=(.*)"),
        ("deploy/compose/compose.yaml", "image: kvcompress:(.*)"),
        ("deploy/kubernetes/base/kustomization.yaml", "newTag: (.*)"),
        ("deploy/kubernetes/overlays/production/kustomization.yaml", "newTag: (.*)"),
        ("CHANGELOG.md", r"(?m)^## (\S+)"),
    ):
        assert re.findall(pattern, text(file))[0] == version, file


def files(root: Path) -> set[str]:
    """Those under a folder, relative to it."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def text(file: str) -> str:
    """A file of the repository."""
    return (REPOSITORY / file).read_text()


def test_package_of_the_server(packages: dict[str, Path], tmp_path: Path) -> None:
    """The binaries and what they need, the unit, its user, and who may run what at install."""
    fields = output("dpkg-deb", "--field", packages["kvcompress"])
    for dependency in ("libgrpc++1.51", "libprotobuf32", "libspdlog1.10-fmt9", "libc6"):
        assert dependency in fields
    output("dpkg-deb", "--extract", packages["kvcompress"], tmp_path)
    assert files(tmp_path) == {
        "usr/bin/kv-compress",
        "usr/bin/kv-compressd",
        "usr/lib/systemd/system/kv-compressd.service",
        "usr/lib/sysusers.d/kvcompress.conf",
        "usr/share/bash-completion/completions/kv-compress",
        "usr/share/bash-completion/completions/kv-compressd",
        "usr/share/doc/kvcompress/CHANGELOG.md",
        "usr/share/doc/kvcompress/OPERATIONS.md",
        "usr/share/doc/kvcompress/copyright",
        "usr/share/fish/vendor_completions.d/kv-compress.fish",
        "usr/share/fish/vendor_completions.d/kv-compressd.fish",
        "usr/share/man/man1/kv-compress.1",
        "usr/share/man/man8/kv-compressd.8",
        "usr/share/zsh/vendor-completions/_kv-compress",
        "usr/share/zsh/vendor-completions/_kv-compressd",
    }
    page = (tmp_path / "usr/share/man/man1/kv-compress.1").read_text()
    assert page == output(tmp_path / "usr/bin/kv-compress", "-man")
    assert "--listen" in (tmp_path / "usr/share/man/man8/kv-compressd.8").read_text().replace(
        "\\-", "-"
    )
    assert output(tmp_path / "usr/bin/kv-compressd", "--version").startswith("kv-compressd 0.")


def test_installation_is_what_the_packages_hold(
    built: Path, packages: dict[str, Path], tmp_path: Path
) -> None:
    """`cmake --install` puts the same files in the same places."""
    installed, unpacked = tmp_path / "installed", tmp_path / "unpacked"
    output("cmake", "--install", built, "--prefix", installed / "usr")
    for package in packages.values():
        output("dpkg-deb", "--extract", package, unpacked)
    assert files(installed) == files(unpacked)


def test_installed_library_is_what_its_package_holds(
    packages: dict[str, Path], tmp_path: Path
) -> None:
    """The component alone, in another place than /usr/local."""
    installed, unpacked = tmp_path / "installed", tmp_path / "unpacked"
    run_line(substituted(claimed_line("library"), **{"/usr/local": str(installed)}))
    output("dpkg-deb", "--extract", packages["libkvcompress-dev"], unpacked)
    assert files(installed) == files(unpacked / "usr")


@pytest.mark.timeout(1800)
def test_package_installs(packages: dict[str, Path], podman: Podman) -> None:
    """Where the libraries are that it names, and without starting anything.

    The image is made of the package, which leaves it first.
    """
    install = f"{claimed_line('apt')} 2>&1 && /usr/bin/kv-compressd --version"
    script = f"cd / && dpkg --purge kvcompress && ! test -e /usr/bin/kv-compressd && {install}"
    folder = packages["kvcompress"].parent
    run = ["run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "sh"]
    answer = podman(*run, "--volume", f"{folder}:/packages:ro", IMAGE, "-c", script)
    assert "Setting up kvcompress" in answer
    assert answer.splitlines()[-1].startswith("kv-compressd 0.")


def systemd(name: str, tool: Tool) -> str:
    """A program of systemd: the machine's, or that of the package, with its own libraries."""
    if found := shutil.which(name):
        return found
    root = tool("debian-package", "systemd")
    [binary] = [path for path in (root / "bin" / name, root / "usr/bin" / name) if path.is_file()]
    libraries = root / "usr/lib/x86_64-linux-gnu/systemd"
    done = subprocess.run(
        [binary, "--version"],
        capture_output=True,
        text=True,
        env={"LD_LIBRARY_PATH": str(libraries)},
        timeout=60,
    )
    if "error while loading shared libraries" in done.stderr:
        pytest.skip(f"{name} does not start: {done.stderr.strip()}")
    return f"LD_LIBRARY_PATH={libraries} {binary}"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The root of a machine that has the unit."""
    target = tmp_path / "usr/lib/systemd/system" / UNIT.name
    target.parent.mkdir(parents=True)
    target.write_text(UNIT.read_text())
    return tmp_path


def test_unit(tool: Tool, machine: Path, fact: Fact) -> None:
    """Systemd can read it, and finds little that it leaves open."""
    options = f"security --offline=yes --root={machine} --no-pager {UNIT.name} 2>&1"
    printed = run_line(f"{systemd('systemd-analyze', tool)} {options}")
    found = re.search(r"Overall exposure level .*: ([0-9.]+)", printed)
    assert found, printed
    fact(f"systemd-analyze security: exposure {found[1]} of 10")
    assert float(found[1]) < MOST_EXPOSED, printed
    assert "Unknown" not in printed


def test_unit_is_enabled(tool: Tool, machine: Path) -> None:
    """For the next start of the machine: --now would need one that systemd runs."""
    words = {"systemctl": systemd("systemctl", tool), "--now": f"--root={machine}"}
    run_line(substituted(claimed_line("systemctl"), **words))
    link = machine / "etc/systemd/system/multi-user.target.wants" / UNIT.name
    assert str(link.readlink()) == f"/usr/lib/systemd/system/{UNIT.name}"


def test_library_is_found_by_another_project(
    packages: dict[str, Path], start: Start, tmp_path: Path, fact: Fact
) -> None:
    """find_package, compile, compress over a server: with nothing of this repository."""
    root, build = tmp_path / "root", tmp_path / "build"
    output("dpkg-deb", "--extract", packages["libkvcompress-dev"], root)
    begun = time.monotonic()
    source = REPOSITORY / "tests" / "consumer"
    [block] = claimed_blocks("consumer")
    assert set(block.replace("(engine ", "(consumer ").splitlines()) <= set(
        (source / "CMakeLists.txt").read_text().splitlines()
    )
    prefix = f"-DCMAKE_PREFIX_PATH={root}/usr"
    output("cmake", "-S", source, "-B", build, "-G", "Ninja", prefix)
    output("cmake", "--build", build)
    server, artefact = start(), tmp_path / "small.safetensors"
    answer = output(build / "consumer", server.addresses[0], SAMPLE, artefact)
    assert re.fullmatch(r"0\.\S+ \d+ codecs, 4\.\d+\n", answer)
    assert artefact.stat().st_size < SAMPLE.stat().st_size / 3
    fact(f"a project of its own found, compiled and used it in {time.monotonic() - begun:.0f} s")
