# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the guide for vLLM has people paste, pasted: a hit after a restart, on vLLM's own page.

Only the model, the folder and the port are others, and what a CPU needs is added. Other tests call
vLLM's classes; here its command line, its processes and its HTTP interface are in between.
"""

import importlib.util
import json
import os
import re
import signal
import sys
import urllib.request
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.slow]
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from documents import blocks_of, spans, substituted  # noqa: E402
from processes import REPOSITORY, Process, free_port  # noqa: E402

GUIDE = "docs/guides/vllm.md"
CHARACTERS, TOKENS = 3000, 8  # of the document; to generate
LEAST_HIT = 256  # tokens of the document, which has more than 700
END_SECONDS = 180  # more than the guide has vLLM take
# What a GPU has and a CPU does not: compiling takes minutes there, and threads that wait for each
# other on processors that others use as well hardly get on.
FOR_A_CPU = "--enforce-eager"
VARIABLES = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",  # as it is unless a test asks for less
}


class Serve(Process):
    """The guide's command."""

    def __init__(self, folder: Path, model: str, metadata: Path) -> None:
        """Starts it and waits until it answers.

        Args:
            folder: For artefacts, and next to it the log.
            model: The folder of a model.
            metadata: A folder with the metadata of the package vllm.
        """
        self._model, self._port = model, free_port()
        [block] = [each for each in blocks_of(GUIDE) if each.startswith("vllm serve ")]
        line = substituted(block, **{" MODEL ": f" {model} ", '"/cache"': json.dumps(str(folder))})
        paths = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(metadata), os.environ["PYTHONPATH"]]),
        }
        variables = [f"{name}={value}" for name, value in {**VARIABLES, **paths}.items()]
        command = f"exec {line.strip()} {FOR_A_CPU} --port {self._port}"
        super().__init__(
            folder.with_name("serve.log"), "/usr/bin/env", *variables, "bash", "-c", command
        )
        self.wait(lambda: self._get("/v1/models"), "answer")

    def complete(self, prompt: str) -> str:
        """Returns what follows a prompt."""
        request = {"model": self._model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        answer = json.loads(self._get("/v1/completions", json.dumps(request).encode()))
        return str(answer["choices"][0]["text"])

    def metrics(self) -> dict[str, float]:
        """Returns by name, without `_total`, the sums of vLLM's page; 0 without a series."""
        page = self._get("/metrics")
        found = dict.fromkeys(re.findall(r"(?m)^# TYPE (vllm:\w+?)(?:_total)? ", page), 0.0)
        for name, value in re.findall(r"(?m)^(vllm:\w+?)(?:_total)?(?:\{.*\})? (\S+)$", page):
            found[name] = found.get(name, 0.0) + float(value)
        return found

    def shared(self) -> set[Path]:
        """Returns the files in memory that its processes share: vLLM's tier in host memory."""
        found: set[Path] = set()
        for maps in Path("/proc").glob("[0-9]*/maps"):
            with suppress(OSError):  # it has ended, or is somebody else's
                if os.getsid(int(maps.parent.name)) == self.process.pid:
                    names = re.findall(r"(/dev/shm/vllm_offload_\S+)$", maps.read_text(), re.M)
                    found |= {Path(name) for name in names}
        return found

    def end(self) -> None:
        """Stops it as an operator does, and waits until it has ended."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=END_SECONDS)

    def __exit__(self, *arguments: object) -> None:
        """Ends it by force where it runs, and frees what it then leaves in memory."""
        left = self.shared()
        super().__exit__(*arguments)
        for path in left:
            path.unlink(missing_ok=True)

    def _get(self, path: str, data: bytes | None = None) -> str:
        """Returns what it answers; with data to a POST.

        Raises:
            OSError: It does not answer.
        """
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=300) as response:
            return str(response.read().decode())


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """A folder that names vLLM's version: `vllm` asks for that of a package which is `vllm-cpu`."""
    folder = tmp_path / "metadata" / "vllm.dist-info"
    folder.mkdir(parents=True)
    lines = ("Metadata-Version: 2.1", "Name: vllm", f"Version: {version('vllm-cpu')}+cpu")
    (folder / "METADATA").write_text("".join(f"{line}\n" for line in lines))
    return folder.parent


@pytest.mark.timeout(1200)
def test_paste_and_restart(model: str, metadata: Path, tmp_path: Path) -> None:
    """The second process finds what the first one has computed; the guide names the metrics."""
    folder = tmp_path / "cache"
    document = (REPOSITORY / "core" / "FORMAT.md").read_text()[:CHARACTERS]
    named = {name for name in spans(GUIDE) if re.fullmatch(r"vllm:\w+", name)}
    hits, queries = (f"vllm:external_prefix_cache_{each}" for each in ("hits", "queries"))
    assert {f"{hits}_total", f"{queries}_total"} < named

    with Serve(folder, model, metadata) as first:
        assert first.complete(f"{document}\n\nQuestion: what is a manifest?\nAnswer:")
        first.wait(lambda: list(folder.rglob("*.safetensors")), "artefact")
        found = first.metrics()
        assert found[queries] > 0
        assert found[hits] == 0
        [shared] = first.shared()
        first.end()
        assert not shared.exists(), "the next one needs the memory"
    with Serve(folder, model, metadata) as second:
        assert second.complete(f"{document}\n\nQ: Which codecs are there? A:")
        found = second.metrics()
        assert found[hits] >= LEAST_HIT
        assert found["vllm:kv_offload_kvcompress_failures"] == 0
        assert {name.removesuffix("_total") for name in named} <= found.keys()
        second.end()
