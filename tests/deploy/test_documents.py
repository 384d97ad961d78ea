# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What documents tell people to type is there, and works.

Every program, script, option and file that they name is looked up. Run as written, but for
the address of the server: commands of kv-compress, with and without TLS, of
`python -m kvcompress` and of grpcurl, ctest, and the Python of both READMEs. Commands of
kv-compressd are run with --check-config added. Of `tests/run` with arguments of pytest, those
are run, as far as finding the tests.

Not run here, and why:

- deploy/quickstart, tests/run and the other scripts: they build, or take minutes.
  test_scripts.py runs what quickstart does after building; `tests/run --all` the rest but
  tests/benchmark in full, tests/overload, tests/soak, tests/tidy and fresh-machine.
- pip: contract/test_python_package.py installs the package, slowly.
- podman, kubectl, cmake, cpack, apt, systemctl: they need root or a cluster, or change the
  machine; test_image.py, test_api_server.py and test_packages.py do what these lines do.
- kvcompress.batch, the Python of other libraries, validation/: Ray, PyTorch or a model are
  needed; integrations/ and model/ have them.
"""

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from authority import Authority
from server_process import Start
from test_repository import REPOSITORY, tracked

from oracle.fixtures import SAMPLE
from oracle.server import Server, running_server

ADDRESS = "127.0.0.1:50051"
SECONDS = 60
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "VERSIONING.md",
    "client/python/README.md",
    "deploy/README.md",
    "deploy/CAPACITY.md",
    "proto/README.md",
    "server/OPERATIONS.md",
    "server/THREAT_MODEL.md",
    "tests/README.md",
    "tests/data/README.md",
    "tests/golden/README.md",
    "validation/README.md",
]

# As tests/run calls it, but finds the tests and runs none.
PYTEST = ["-m", "pytest", "-c", "tests/pytest.ini", "-p", "no:cacheprovider", "--collect-only"]

# Not of this repository; what they are given is theirs to check.
FOREIGN = {"apt", "cmake", "cpack", "ctest", "export", "grpcurl", "kubectl", "pip", "podman"}
FOREIGN |= {"systemctl", "python=$(deploy/python-env"}
FOREIGN_OPTIONS = {"--read-only", "--cap-drop", "-O1", "-O2", "-g1", "-g", "-ffast-math"}
# How indented lines begin that are no commands: Python, YAML, a query of Prometheus.
OTHERWISE = re.compile(r"import |with |report = |client\.|volumes: |# in the |sum\(")
OPTION = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]*)")


def text_of(document: str) -> str:
    """A document."""
    return (REPOSITORY / document).read_text()


def commands(document: str) -> list[str]:
    """The indented lines that are commands, each on one line, without what explains it."""
    text = re.sub(r"^```.*?^```$", "", text_of(document), flags=re.DOTALL | re.MULTILINE)
    text = text.replace("\\\n", "")
    lines = re.findall(r"^ {4}(?! )(.+)$", text, re.MULTILINE)
    return [re.sub(r" {2,}.*", "", line) for line in lines if not OTHERWISE.match(line.strip())]


def python_of(document: str) -> list[str]:
    """The blocks of Python, fenced or indented."""
    text = text_of(document)
    fenced = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^((?: {4}import .*\n)(?:(?: {4}.*)?\n)*)", text, re.MULTILINE)
    return fenced + [re.sub("^ {4}", "", block, flags=re.MULTILINE) for block in indented]


def spans(document: str) -> list[str]:
    """What stands between backquotes in the text."""
    text = re.sub(
        r"^(```.*?^```| {4}[^\n]*)$", "", text_of(document), flags=re.DOTALL | re.MULTILINE
    )
    return re.findall(r"`([^`\n]+)`", text)


@functools.cache
def names_of_files() -> list[str]:
    """All that are tracked, with a slash in front."""
    return [f"/{path.relative_to(REPOSITORY)}" for path in tracked()]


@functools.cache
def helps(bin_dir: Path) -> dict[str, str]:
    """What --help of the programs says."""
    found = {}
    for name in ("kv-compress", "kv-compressd"):
        command = [str(bin_dir / name), "--help"]
        found[name] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return found


def options_in(text: str) -> set[str]:
    """Options, by their names alone: kv-compress takes one dash or two."""
    return {option.lstrip("-") for option in OPTION.findall(text)}


def program_of(command: str) -> tuple[str, str]:
    """The program of a command, after its variables, and its arguments."""
    words = command.split()
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    if words[0] == "$python":
        words.pop(0)
    if words[:2] == ["python", "-m"]:
        words[:3] = [f"python -m {words[2]}"]
    return words[0], " ".join(words[1:])


def known_options(program: str, bin_dir: Path) -> set[str]:
    """Those that a program of the repository takes."""
    name = program.removeprefix("bin/")
    if name in helps(bin_dir):
        return options_in(helps(bin_dir)[name])
    if program == "python -m kvcompress":
        return options_in(helps(bin_dir)["kv-compress"])
    if program == "python -m kvcompress.batch":
        program = "client/python/src/kvcompress/batch.py"
    # Its help may need what is not installed; it is written from this text.
    return options_in((REPOSITORY / program).read_text())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_programs_and_their_options_are_there(bin_dir: Path, document: str) -> None:
    """Of each command; what follows a lone -- is for another program."""
    for command in commands(document):
        program, arguments = program_of(command)
        if program in FOREIGN:
            continue
        given = options_in(re.split(r"(?:^| )-- | \|", arguments)[0])
        assert given <= known_options(program, bin_dir) | {"help"}, command


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_the_text_names_are_there(document: str) -> None:
    """By their whole name, or by the end of it."""
    for span in spans(document):
        name = span.split()[0]
        if re.fullmatch(r"[\w./-]*\w\.(cc|h|py|md|proto|template)", name) or re.match(
            r"(core|client|deploy|proto|server|tests|validation)/[\w/.-]+$", name
        ):
            wanted = "/" + name.removeprefix("./").rstrip("/")
            found = [file for file in names_of_files() if f"{file}/".find(f"{wanted}/") >= 0]
            assert found, f"{document}: {span}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_that_the_text_names_are_there(bin_dir: Path, document: str) -> None:
    """In a program, or in a script."""
    scripts = [path for path in tracked() if not path.suffix and path.read_bytes()[:2] == b"#!"]
    known = options_in("\n".join(FOREIGN_OPTIONS))
    for text in [*helps(bin_dir).values(), *(path.read_text() for path in scripts)]:
        known |= options_in(text)
    for path in (REPOSITORY / "validation").glob("*.py"):
        known |= options_in(path.read_text())
    for span in spans(document):
        if re.match("--?[a-z]", span):
            assert options_in(span) <= known, f"{document}: {span}"


@pytest.fixture(scope="module")
def served(bin_dir: Path) -> Iterator[Server]:
    """The server that the documents' commands call."""
    with running_server(bin_dir) as server:
        yield server


@pytest.fixture
def shell(bin_dir: Path, tmp_path: Path, authority: Authority) -> Path:
    """A folder with the programs and the files that the commands name."""
    (tmp_path / "bin").symlink_to(bin_dir.resolve())
    shutil.copy(SAMPLE, tmp_path / "cache.safetensors")
    for name in ("server", "client"):
        pair = authority.sign(name)
        shutil.copy(pair.certificate, tmp_path / f"{name}.pem")
        shutil.copy(pair.key, tmp_path / f"{name}.key")
    for name in ("ca", "clients"):
        shutil.copy(authority.certificate, tmp_path / f"{name}.pem")
    return tmp_path


def run(command: str, folder: Path) -> str:
    """Runs a line of shell; what it printed."""
    paths = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    variables = {
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": str(REPOSITORY / "client" / "python" / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_of_clients(document: str, shell: Path, served: Server) -> None:
    """In the order of the document, in one folder."""
    for command in commands(document):
        program, _ = program_of(command)
        ours = program.removeprefix("bin/") in ("kv-compress", "python -m kvcompress")
        if ours and "kv.example" not in command:
            assert run(command.replace(ADDRESS, served.target), shell), command


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_of_the_server(document: str, shell: Path) -> None:
    """The options go together, and the files are what they should be."""
    for command in commands(document):
        if program_of(command)[0].removeprefix("bin/") == "kv-compressd":
            run(command.replace("/dev/shm/kvcompress", str(shell)) + " --check-config", shell)


def test_commands_over_tls(shell: Path, start: Start) -> None:
    """A server and a client that know each other's certificates, as OPERATIONS.md has them."""
    lines = commands("server/OPERATIONS.md")
    server = next(line for line in lines if "--tls-client-ca" in line)
    clients = [line for line in lines if "kv.example" in line]
    assert clients
    flags = [
        str(shell / word) if word.endswith((".pem", ".key")) else word
        for word in shlex.split(server)[1:]
    ]
    flags[flags.index("0.0.0.0:50051")] = "127.0.0.1:0"
    address = start(*flags).addresses[0]
    for line in clients:
        assert run(line.replace("kv.example:50051", address), shell), line


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_of_ctest(document: str) -> None:
    """They find tests, and those pass."""
    lines = [line for line in commands(document) if program_of(line)[0] == "ctest"]
    for line in lines:
        if not (REPOSITORY / "build" / "release" / "CTestTestfile.cmake").is_file():
            pytest.skip("build/release is not there")
        run(f"{line} --no-tests=error", REPOSITORY)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_tests_that_commands_name(document: str) -> None:
    """There are some. Finding them imports everything that they need."""
    for line in commands(document):
        words = shlex.split(line)
        if words[0] != "tests/run" or not {"-k", "--"} & set(words):
            continue
        chosen = [word for word in words[1:] if word != "--"]
        run(shlex.join(["python", *PYTEST, *chosen]), REPOSITORY)


def test_commands_of_grpcurl(shell: Path, served: Server) -> None:
    """By reflection."""
    grpcurl = os.environ.get("KVCOMPRESS_GRPCURL") or shutil.which("grpcurl")
    if not grpcurl:
        pytest.skip("no grpcurl: KVCOMPRESS_GRPCURL names none, and none is on the PATH")
    lines = [line for line in commands("README.md") if line.startswith("grpcurl ")]
    lines += [span for span in spans("server/OPERATIONS.md") if span.startswith("grpcurl ")]
    assert len(lines) > 2
    for line in lines:
        command = line.replace("grpcurl", grpcurl, 1).replace(ADDRESS, served.target)
        assert run(command, shell).startswith("{"), line


@pytest.mark.parametrize("document", ["README.md", "client/python/README.md"])
def test_python(document: str, shell: Path, served: Server) -> None:
    """What needs this package and NumPy alone, with a cache where names stand for one."""
    names = "import kvcompress, numpy\nkeys = values = numpy.ones((1, 2, 200, 64), numpy.float16)\n"
    blocks = [block for block in python_of(document) if f'"{ADDRESS}"' in block]
    assert len(blocks) == 1
    block = blocks[0].replace(ADDRESS, served.target)
    if importlib.util.find_spec("torch") is None:
        block = block.replace("result.torch_tensors()", "None")
    (shell / "block.py").write_text(names + block)
    run("python block.py", shell)
