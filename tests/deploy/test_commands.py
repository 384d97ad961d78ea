# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The commands of documents that take a moment, and their Python.

Run as written, but for addresses, the names of files, and --check-config for a server.
"""

import filecmp
import importlib.util
import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from authority import Authority
from documents import (
    DOCUMENTS,
    REPOSITORY,
    claimed,
    claimed_blocks,
    claimed_line,
    run_line,
    substituted,
    text_of,
)
from server_process import Start

from oracle.fixtures import SAMPLE
from oracle.server import Server, running_server

ADDRESS = "127.0.0.1:50051"
GOLDEN = REPOSITORY / "tests" / "golden"

# As tests/run calls it, but finds the tests and runs none.
PYTEST = ["-m", "pytest", "-c", "tests/pytest.ini", "-p", "no:cacheprovider", "--collect-only"]


@pytest.fixture(scope="module")
def served(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that the documents' commands call, with the profile that they train."""
    folder = tmp_path_factory.mktemp("profiles")
    train: list[str | Path] = [bin_dir / "kv-compress", "train", "-o", folder / "model.profile"]
    flags: list[str | Path] = ["-model-label", "SmolLM2", "-profile-layers", "3", SAMPLE]
    subprocess.run([*train, *flags], check=True, stdout=subprocess.DEVNULL)
    with running_server(bin_dir, "--profile-directory", str(folder)) as server:
        yield server


@pytest.fixture
def shell(bin_dir: Path, tmp_path: Path, authority: Authority) -> Path:
    """A folder with the programs and the files that the commands name."""
    (tmp_path / "bin").symlink_to(bin_dir.resolve())
    (tmp_path / "caches").mkdir()
    for name in ("cache", "other", "caches/one"):
        shutil.copy(SAMPLE, tmp_path / f"{name}.safetensors")
    for name in ("server", "client"):
        pair = authority.sign(name)
        shutil.copy(pair.certificate, tmp_path / f"{name}.pem")
        shutil.copy(pair.key, tmp_path / f"{name}.key")
    for name in ("ca", "clients"):
        shutil.copy(authority.certificate, tmp_path / f"{name}.pem")
    return tmp_path


@pytest.mark.parametrize("document", DOCUMENTS)
def test_client(document: str, shell: Path, served: Server) -> None:
    """In the order of the document, in one folder; the name of a program alone says its version."""
    (shell / "tests").symlink_to(REPOSITORY / "tests")
    for line in claimed("client", document):
        command = line.replace(ADDRESS, served.target).replace("NAME:PRESET", "ecsq:max")
        if "kv-compress train" in line and "-profile-layers" not in line:
            # Groups of ten layers, the default, take a minute.
            command = re.sub(r"(?= cache\S*\.safe)", " -profile-layers 3", command)
        alone = " " not in command.removeprefix("python -m ")
        assert run_line(f"{command} -version" if alone else command, shell), line


def test_server(shell: Path) -> None:
    """The options go together, and the files are what they should be."""
    for line in claimed("server"):
        command = line.replace("/dev/shm/kvcompress", str(shell))
        command = command.replace("/var/lib/kvcompress/profiles", str(shell))
        run_line(command if "--check-config" in line else f"{command} --check-config", shell)


def test_configuration_file(shell: Path) -> None:
    """That of OPERATIONS.md is valid."""
    [block] = claimed_blocks("configuration")
    (shell / "kvcompress.yaml").write_text(block)
    run_line("bin/kv-compressd --check-config --config kvcompress.yaml", shell)


def test_tls(shell: Path, start: Start) -> None:
    """A server and a client that know each other's certificates, as OPERATIONS.md has them."""
    server = next(line for line in claimed("server") if "--tls-client-ca" in line)
    flags = [
        str(shell / word) if word.endswith((".pem", ".key")) else word
        for word in shlex.split(server)[1:]
    ]
    flags[flags.index("0.0.0.0:50051")] = "127.0.0.1:0"
    address = start(*flags).addresses[0]
    client = claimed_line("client over TLS")
    assert run_line(client.replace("kv.example:50051", address), shell)
    [block] = claimed_blocks("pool")
    block = block.replace("kvcompress.kvcompress.svc.cluster.local:50051", address)
    for name, file in (("ca.crt", "ca.pem"), ("tls.crt", "client.pem"), ("tls.key", "client.key")):
        assert name in block
        shutil.copy(shell / file, shell / name)
    (shell / "block.py").write_text(f"import kvcompress\nprint(({block}).server_info().version)\n")
    assert run_line("python block.py", shell).count(".") == 2


@pytest.mark.parametrize("line", claimed("ctest"))
def test_ctest(line: str) -> None:
    """They find tests, and those pass; all of them are for tests/run."""
    if not (REPOSITORY / "build" / "release" / "CTestTestfile.cmake").is_file():
        pytest.skip("build/release is not there")
    run_line(f"{line} --no-tests=error" + ("" if " -R " in line else " -R Header"))


def collect(arguments: list[str]) -> None:
    """Finds Python tests, which imports everything that they need, and runs none."""
    run_line(shlex.join(["python", *PYTEST, *arguments]))


def test_python_tests_that_commands_name() -> None:
    """There are some. Here all are looked for at once; tests/run runs them."""
    lines = [shlex.split(line) for line in claimed("tests") + claimed("folders of tests")]
    collect(list(dict.fromkeys(itertools.chain(*(words[2:] for words in lines if "--" in words)))))
    for words in lines:
        if "--" not in words:
            collect(words[1:])


def test_python_tests_that_the_text_names() -> None:
    """As tests/run takes them: instead of FILE."""
    found = set()
    for document in DOCUMENTS:
        for line in claimed("files of tests", document):
            names = re.findall(r"`((?:\w+/)+test_\w+\.py)`", text_of(document))
            assert names
            found |= {
                line.split()[-1].replace("FILE", name.removeprefix("tests/")) for name in names
            }
    collect(sorted(found))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", claimed("tests"), ids=itertools.count())
def test_tests(line: str) -> None:
    """Within tests/run, and another than it. The names of these match nothing that -k chooses."""
    last = run_line(line, seconds=280).splitlines()[-1]
    assert re.fullmatch(r"[1-9]\d* passed, 0 failed, \d+ skipped", last)


def test_grpcurl(shell: Path, served: Server) -> None:
    """By reflection."""
    grpcurl = os.environ.get("KVCOMPRESS_GRPCURL") or shutil.which("grpcurl")
    if not grpcurl:
        pytest.skip("no grpcurl: KVCOMPRESS_GRPCURL names none, and none is on the PATH")
    for line in claimed("grpcurl"):
        command = line.replace("grpcurl", grpcurl, 1).replace(ADDRESS, served.target)
        assert run_line(command, shell).startswith("{"), line


def test_curl(shell: Path, served: Server) -> None:
    """Every page of the HTTP endpoint has something on it."""
    if shutil.which("curl") is None:
        pytest.skip("no curl on the PATH")
    for line in claimed("curl"):
        assert run_line(line.replace("127.0.0.1:9464", served.metrics_address), shell), line


def test_malformed(tmp_path: Path) -> None:
    """Its files are written where the line says."""
    contract = REPOSITORY / "tests" / "contract"
    folder = tmp_path / "files"
    run_line(substituted(claimed_line("malformed"), DIR=str(folder)), contract)
    assert len(list(folder.iterdir())) > 100


def test_golden(bin_dir: Path, tmp_path: Path) -> None:
    """In a copy: every file is there, and none is added."""
    copy = tmp_path / "golden"
    shutil.copytree(GOLDEN, copy)
    (tmp_path / "contract").symlink_to(GOLDEN.parent / "contract")
    run_line(substituted(claimed_line("golden"), BIN_DIR=str(bin_dir.resolve())), copy)
    names = [path.relative_to(copy) for path in copy.rglob("*") if path.is_file()]
    assert filecmp.cmpfiles(GOLDEN, copy, names, shallow=False)[1:] == ([], [])


def test_names_in_the_first_picture(bin_dir: Path) -> None:
    """The server is a program, and each engine has an integration."""
    [picture] = claimed_blocks("where it sits")
    assert re.findall(r"kv-\w+", picture) == ["kv-compressd"]
    assert (bin_dir / "kv-compressd").is_file()
    integrations = REPOSITORY / "client/python/src/kvcompress/integrations"
    for engine in ("vLLM", "LMCache", "transformers"):
        assert engine in picture
        assert list(integrations.glob(f"{engine.lower()}*")), engine


@pytest.mark.parametrize("block", claimed_blocks("client"))
def test_python(block: str, shell: Path, served: Server) -> None:
    """What needs this package and NumPy alone, with a cache where names stand for one."""
    names = "import kvcompress, numpy\nkeys = values = numpy.ones((1, 2, 200, 64), numpy.float16)\n"
    block = block.replace(ADDRESS, served.target)
    if importlib.util.find_spec("torch") is None:
        block = block.replace("result.torch_tensors()", "None")
    (shell / "block.py").write_text(names + block)
    run_line("python block.py", shell)
