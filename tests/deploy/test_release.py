# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""deploy/release: what it writes, that it runs on other systems, and that it writes it again."""

import email
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest
from chroots import Chroot, need_chroots, unpacked
from documents import claimed_line, run_line, substituted
from test_repository import tracked
from tools import REPOSITORY, Fact, Tool, free_port, output

SAMPLE = REPOSITORY / "tests" / "data" / "smollm2_kjv_96_bf16.safetensors"
# Bounds that only an accident breaks, such as a program that is not stripped.
MOST_MEGABYTES = 20
# The bound on the first result after `pip install`.
SECONDS = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, fact: Fact) -> Path:
    """Made by the command of the documents, but for the image, which has tests of its own."""
    if "KVCOMPRESS_BIN_DIR" in os.environ:
        pytest.skip("KVCOMPRESS_BIN_DIR names other binaries than those of the release build")
    folder = tmp_path_factory.mktemp("release") / "dist"
    begun = time.monotonic()
    run_line(f"{claimed_line('release')} --no-image --out {folder}", seconds=900)
    fact(f"release: {time.monotonic() - begun:.0f} s, without the image")
    for path in sorted(folder.iterdir()):
        fact(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return folder


def one(folder: Path, pattern: str) -> Path:
    """The only file of that pattern."""
    [path] = folder.glob(pattern)
    return path


@pytest.fixture(scope="module")
def native(release: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the program of the build, with the libraries of this machine, makes of the sample."""
    artefact = tmp_path_factory.mktemp("native") / "artefact"
    program = REPOSITORY / "build" / "release" / "client" / "kv-compress"
    assert release.is_dir()
    output(program, "-input", SAMPLE, "-output", artefact)
    return artefact.read_bytes()


def test_files_and_their_checksums(release: Path) -> None:
    """Everything that is promised; small enough that nothing is in it by accident."""
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=release, check=True)
    assert run_line(claimed_line("checksums"), release).count(": OK\n") > 1
    listed = (release / "SHA256SUMS").read_text().split()[1::2]
    assert {*listed, "SHA256SUMS"} == {path.name for path in release.iterdir()}
    patterns = ["*.whl", "kvcompress-*.tar.gz", "kvcompress_*.deb", "libkvcompress-dev_*.deb"]
    patterns += ["*.spdx.json", "kvcompress-*-notes.md"]
    assert {one(release, each).name for each in patterns} == set(listed)
    assert all(path.stat().st_size < MOST_MEGABYTES * 1e6 for path in release.iterdir())


def differing(first: Path, second: Path) -> list[Path]:
    """Files that do not have the same bytes in two folders, which have the same names."""
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}
    return [
        path for path in first.iterdir() if path.read_bytes() != (second / path.name).read_bytes()
    ]


def test_again_gives_the_same_bytes(release: Path, tmp_path: Path) -> None:
    """Every file, from the same build."""
    again = tmp_path / "again"
    output(REPOSITORY / "deploy" / "release", "--no-build", "--no-image", "--out", again)
    assert differing(release, again) == []


@pytest.mark.nightly
def test_another_compilation_gives_the_same_bytes(
    release: Path, tmp_path: Path, fact: Fact
) -> None:
    """Every file, compiled in another folder by the compiler itself, not by its cache."""
    elsewhere, again = tmp_path / "another" / "folder", tmp_path / "again"
    for path in tracked():
        copy = elsewhere / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy, follow_symlinks=False)
    find = ["git", "-C", str(REPOSITORY), "rev-parse", "--absolute-git-dir"]
    found = subprocess.run(find, capture_output=True, text=True)
    revision = {"GIT_DIR": found.stdout.strip()} if found.returncode == 0 else {}
    begun = time.monotonic()
    subprocess.run(
        [elsewhere / "deploy" / "release", "--no-image", "--out", again],
        env={**os.environ, **revision, "CCACHE_DISABLE": "1"},
        check=True,
    )
    fact(f"a second compilation and release: {time.monotonic() - begun:.0f} s")
    assert differing(release, again) == []


def test_manual_pages_and_completions(release: Path, tmp_path: Path) -> None:
    """Of both programs, the same in the package, the tarball and the wheel."""
    output("dpkg-deb", "--extract", one(release, "kvcompress_*.deb"), tmp_path)
    share = tmp_path / "usr" / "share"
    pages = {
        str(path.relative_to(tmp_path / "usr")): path.read_bytes()
        for name in ("bash-completion", "fish", "man", "zsh")
        for path in (share / name).rglob("*")
        if path.is_file()
    }
    assert len(pages) == 8
    with tarfile.open(one(release, "*.tar.gz")) as archive:
        [top] = {name.partition("/")[0] for name in archive.getnames()}
        for name, content in pages.items():
            held = archive.extractfile(f"{top}/{name}")
            assert held is not None
            assert held.read() == content
    with zipfile.ZipFile(one(release, "*.whl")) as wheel:
        [data] = {name.partition("/")[0] for name in wheel.namelist() if ".data/" in name}
        for name, content in pages.items():
            assert wheel.read(f"{data}/data/{name}") == content


def test_bill_of_materials_and_licences(release: Path) -> None:
    """A text and an entry for whatever is contained, in the wheel and in the tarball."""
    bill = one(release, "*.spdx.json").read_bytes()
    packages = {each["name"] for each in json.loads(bill)["packages"]} - {"kvcompress"}
    assert {"libc6", "libgrpc29", "libssl3", "libstdc++6", "nlohmann-json3-dev"} <= packages
    with zipfile.ZipFile(one(release, "*.whl")) as wheel:
        names = set(wheel.namelist())
        [information] = [name.partition("/")[0] for name in names if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(wheel.read(f"{information}/METADATA"))
        assert wheel.read(f"{information}/sboms/kvcompress.spdx.json") == bill
    texts = {f"bundled/{package}" for package in packages}
    assert texts <= set(metadata.get_all("License-File", []))
    assert {f"{information}/licenses/{name}" for name in texts} <= names
    assert {"bundled/common-licenses/LGPL-2.1"} <= set(metadata.get_all("License-File", []))
    assert "LGPL-2.1-or-later" in metadata["License-Expression"]
    with tarfile.open(one(release, "*.tar.gz")) as archive:
        members = {member.name.partition("/")[2]: member for member in archive}
        share = "share/doc/kvcompress"
        assert {f"{share}/licenses/{package}" for package in packages} <= members.keys()
        held = archive.extractfile(members[f"{share}/sbom.spdx.json"])
        assert held is not None
        assert held.read() == bill
    assert {(member.uid, member.gid, member.uname) for member in members.values()} == {
        (0, 0, "root")
    }


def test_debian_packages_are_those_of_cpack(release: Path, tmp_path: Path) -> None:
    """With files that belong to root, sums that are right, and a script that can be run."""
    deb = one(release, "kvcompress_*.deb")
    assert " root/root " in output("dpkg-deb", "--contents", deb)
    output("dpkg-deb", "--raw-extract", deb, tmp_path / "deb")
    built_using = output("dpkg-deb", "--field", deb, "Static-Built-Using")
    assert re.fullmatch(r"libcli11-dev \(= \S+\), nlohmann-json3-dev \(= \S+\)\n", built_using)
    assert (tmp_path / "deb/DEBIAN/postinst").stat().st_mode & 0o777 == 0o755
    sums = tmp_path / "deb/DEBIAN/md5sums"
    subprocess.run(["md5sum", "--check", "--quiet", sums], cwd=tmp_path / "deb", check=True)
    assert output(tmp_path / "deb/usr/bin/kv-compressd", "--version").startswith("kv-compressd 0.")


@pytest.fixture(scope="module")
def installed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the lines of the documents unpacked the tarball to, instead of /opt."""
    place = tmp_path_factory.mktemp("opt")
    run_line(substituted(claimed_line("tarball"), **{"/opt": str(place)}), release)
    links = place / "linked"
    links.mkdir()
    words = {"/opt": str(place), "/usr/local/bin": str(links)}
    run_line(substituted(claimed_line("tarball, by links"), **words))
    assert output(links / "kv-compress", "-version").startswith("kv-compress 0.")
    return one(place, "kvcompress-*")


def test_becomes_the_program(installed: Path, tmp_path: Path) -> None:
    """One process, named as it should be, which is stopped by signals; also by a link to it.

    Its kernels are the fastest of this processor, as those of the build are.
    """
    kernels = []
    built = REPOSITORY / "build" / "release" / "server" / "kv-compressd"
    for program in (installed.parent / "linked" / "kv-compressd", built):
        metrics = f"127.0.0.1:{free_port()}"
        command = [str(program), "--listen", f"unix:{tmp_path}/socket"]
        command += ["--metrics-listen", metrics]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                kernels.append(fact_of("kernels", metrics))
                folder = Path("/proc", str(process.pid))
                assert (folder / "comm").read_text() == "kv-compressd\n"
                assert (folder / "task" / str(process.pid) / "children").read_text() == ""
            finally:
                process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert kernels[0] == kernels[1]


def fact_of(name: str, metrics: str) -> str:
    """A line of the page for people, once it is there."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://{metrics}/statusz", timeout=10) as answer:
                page: str = answer.read().decode()
                [line] = [each for each in page.splitlines() if name in each]
                return line
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_arguments_and_environment(installed: Path, tmp_path: Path) -> None:
    """Reach the program as they are; a library path of the system's does not."""
    folder = tmp_path / "with space"
    folder.symlink_to(installed)
    run = [str(folder / "bin/kv-compress"), "-input", "no such file", "-metrics-only"]
    environment = {"LD_LIBRARY_PATH": "/lib/x86_64-linux-gnu"}
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "no such file" in done.stderr
    refused = tmp_path / "a:b"
    shutil.copytree(installed / "bin", refused / "bin")
    done = subprocess.run([refused / "bin/kv-compress"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "with : or ; in its name" in done.stderr


def test_runs_without_libraries_of_the_system(
    release: Path, native: bytes, tool: Tool, tmp_path: Path
) -> None:
    """Where there is nothing but a static shell: no C library, no loader."""
    need_chroots()
    busybox = tool("debian-package", "busybox-static") / "bin" / "busybox"
    if not busybox.exists():
        busybox = busybox.parents[1] / "usr" / "bin" / "busybox"
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "sh")
    os.link(root / "bin" / "sh", root / "bin" / "readlink")
    (root / "opt").mkdir()
    output("tar", "-xf", one(release, "*.tar.gz"), "-C", root / "opt")
    shutil.copy(SAMPLE, root / "sample")
    program = f"/{one(root / 'opt', '*').relative_to(root)}/bin/kv-compress"
    run = Chroot(root)
    run(program, "-input", "/sample", "-output", "/artefact")
    assert (root / "artefact").read_bytes() == native


@pytest.mark.parametrize("number", [11, 12, 13])
def test_wheel_installs(
    number: int, release: Path, native: bytes, tool: Tool, tmp_path: Path, fact: Fact
) -> None:
    """On a system with Python and no compiler, into an empty environment.

    Debian 11 has Python 3.9, for which the client is too new: the programs of the wheel run there.
    """
    need_chroots()
    base = tool("base-system", str(number))
    with unpacked(base, tmp_path / "root") as run:
        shutil.copy(SAMPLE, run.root / "sample")
        wheel = one(release, "*.whl")
        shutil.copy(wheel, run.root / wheel.name)
        assert run("sh", "-c", "command -v cc gcc g++ cmake protoc || true") == ""
        run("python3", "-m", "venv", "/venv")
        begun = time.monotonic()
        python = run("/venv/bin/python", "--version").strip()
        if number == 11:
            options = ["--ignore-requires-python", "--no-deps"]
            run("/venv/bin/pip", "install", "--quiet", *options, f"/{wheel.name}")
            folder = one(run.root, "venv/lib/python3*/site-packages/kvcompress/bin")
            program = f"/{folder.relative_to(run.root)}/kv-compress"
        else:
            line = substituted(claimed_line("wheel"), **{"kvcompress-": "/kvcompress-"})
            run("sh", "-c", f"PATH=/venv/bin:$PATH; {line}")
            program = "/venv/bin/kv-compress"
        installed = time.monotonic()
        run(program, "-input", "/sample", "-output", "/artefact")
        seconds = time.monotonic() - installed
        assert seconds < SECONDS
        assert (run.root / "artefact").read_bytes() == native
        glibc = run("ldd", "--version").splitlines()[0].split()[-1]
        fact(
            f"wheel on Debian {number} (glibc {glibc}, {python}): installed in "
            f"{installed - begun:.0f} s, first result {seconds:.1f} s later"
        )
        if number != 11:
            assert run("/venv/bin/kv-compressd", "--version").startswith("kv-compressd 0.")
            own_server = (
                "import kvcompress\nwith kvcompress.Client() as client:\n"
                "    print(client.compress('/sample', '/second', codec='int8').report.verdict)"
            )
            assert run("/venv/bin/python", "-c", own_server) != ""
