# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compresses a folder or a bucket of caches, on one machine or on many, with Ray Data.

    python -m kvcompress.batch caches compressed --codec int4-hadamard
    python -m kvcompress.batch s3://bucket/caches s3://bucket/compressed --address ray://head:10001

Each worker has a server of its own. Running it again is safe: what is there, was made of the
same bytes with the same options, and passes every check, is kept; all else is made again. An
artefact is verified before it appears. A file that cannot be compressed is reported and
stops nothing; a worker that dies is Ray's to replace.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import xxhash

from kvcompress._client import Client
from kvcompress._inputs import printable
from kvcompress._output_file import check_output
from kvcompress._private_folder import PrivateFolder
from kvcompress._requests import CHUNK_BYTES
from kvcompress._sinks import FileSink
from kvcompress.errors import KVCompressError, UnavailableError
from kvcompress.options import CompressArguments

_SUFFIX = ".kvc.safetensors"


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    Attributes:
        name: Path below the source folder.
        status: `compressed`, `kept`, or `failed`.
        original_size_bytes: Bytes of tensor data in the source.
        compressed_size_bytes: Bytes of the artefact.
        snr_db: Signal-to-noise ratio over all tensors; None when exact, kept or failed.
        passed: Whether every threshold holds; None when kept or failed.
        message: What went wrong.
    """

    name: str
    status: str
    original_size_bytes: int = 0
    compressed_size_bytes: int = 0
    snr_db: float | None = None
    passed: bool | None = None
    message: str = ""


class Worker:
    """Compresses one file after the other with a server of its own. For one thread."""

    def __init__(self, source: str, target: str, options: CompressArguments) -> None:
        """Starts the server.

        Args:
            source: Folder of safetensors files: a path, or a URI that pyarrow.fs knows.
            target: Folder of artefacts, likewise; made if missing.
            options: See `kvcompress.options.CompressArguments`; `labels` are bound with
                `batch.source` and `batch.options`.

        Raises:
            OSError: There is no kv-compressd, or a folder cannot be reached.
        """
        self._work = PrivateFolder("kvcompress-batch-")
        self._source, self._target = (_Folder(each, self._work.path) for each in (source, target))
        self._options = options
        self._options_digest = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
        self._client = Client()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Compresses the file `row["name"]`, and returns an Outcome as a dictionary."""
        try:
            return asdict(self._compress(row["name"]))
        except UnavailableError:  # the server died: once more, with another
            self._client.close()
            self._client = Client()
        except (KVCompressError, OSError) as error:
            return asdict(Outcome(row["name"], "failed", message=str(error)))
        try:
            return asdict(self._compress(row["name"]))
        except (KVCompressError, OSError) as error:
            return asdict(Outcome(row["name"], "failed", message=str(error)))

    def close(self) -> None:
        """Stops the server, and removes temporary files."""
        self._client.close()
        self._work.remove()

    def _compress(self, name: str) -> Outcome:
        """Does one file."""
        target = name.removesuffix(".safetensors") + _SUFFIX
        with self._source.local(name) as source:
            labels = {"batch.source": _digest(source), "batch.options": self._options_digest}
            if self._target.has(target):
                try:
                    with self._target.local(target) as artefact:
                        kept = self._client.decompress(
                            artefact, verify_only=True, expected_labels=labels
                        ).report
                except UnavailableError:
                    raise
                except KVCompressError:
                    pass  # damaged, or of other bytes or options
                else:
                    sizes = kept.original_size_bytes, kept.compressed_size_bytes
                    return Outcome(name, "kept", *sizes)
            with tempfile.TemporaryDirectory(dir=self._work.path) as folder:
                path = Path(folder, "artefact")
                labels = {**(self._options.get("labels") or {}), **labels}
                options: CompressArguments = {**self._options, "labels": labels}
                options["report_tensors"] = False
                report = self._client.compress(source, path, **options).report
                digest = report.payload_digest
                self._client.decompress(path, verify_only=True, expected_payload_digest=digest)
                self._target.publish(path, target, source)
        return Outcome(
            name,
            "compressed",
            report.original_size_bytes,
            report.compressed_size_bytes,
            report.metrics.snr_db,
            report.verdict.passed,
        )


class _Folder:
    """A folder of a file system of pyarrow."""

    def __init__(self, place: str, work: Path | None = None) -> None:
        """Takes a path or a URI, and where copies go; None: with all temporary files."""
        from pyarrow import fs  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if "://" in place:
            self._system, self._path = fs.FileSystem.from_uri(place)
        else:
            self._system, self._path = fs.LocalFileSystem(), str(Path(place).absolute())
        self._work = work
        self._is_local = isinstance(self._system, fs.LocalFileSystem)

    def names(self, pattern: str) -> list[str]:
        """Returns the files below the folder that match and are no artefacts of a batch."""
        from pyarrow import fs

        selector = fs.FileSelector(self._path, recursive=True)
        found = (info for info in self._system.get_file_info(selector) if info.is_file)
        names = (str(info.path).removeprefix(self._path).lstrip("/") for info in found)
        return sorted(
            name for name in names if fnmatchcase(name, pattern) and not name.endswith(_SUFFIX)
        )

    def has(self, name: str) -> bool:
        """Returns whether a file is there."""
        return bool(self._system.get_file_info(f"{self._path}/{name}").is_file)

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """Yields a path to read a file by: its own, or that of a copy."""
        if self._is_local:
            yield Path(self._path, name)
            return
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            path = Path(folder, "copy")
            with (
                self._system.open_input_stream(f"{self._path}/{name}") as remote,
                path.open("wb") as file,
            ):
                while chunk := remote.read(CHUNK_BYTES):
                    file.write(chunk)
            yield path

    def publish(self, path: Path, name: str, source: Path) -> None:
        """Copies a finished file into the folder, where it appears whole.

        Raises:
            InvalidArgumentError: It would replace the source that it was made of.
        """
        place = f"{self._path}/{name}"
        self._system.create_dir(place.rpartition("/")[0])
        with path.open("rb") as file:
            if self._is_local:
                check_output(place, source, overwrite=True)
                with FileSink(place, source=source, overwrite=True) as sink:
                    while chunk := file.read(CHUNK_BYTES):
                        sink.write(file.tell() - len(chunk), chunk)
                    sink.commit()
            else:
                with self._system.open_output_stream(place) as remote:
                    while chunk := file.read(CHUNK_BYTES):
                        remote.write(chunk)


def run(
    source: str,
    target: str,
    options: CompressArguments,
    *,
    pattern: str = "*.safetensors",
    workers: int | None = None,
    address: str | None = None,
) -> list[Outcome]:
    """Compresses every file of a folder.

    Args:
        source: Folder of safetensors files: a path, or a URI that pyarrow.fs knows, which
            every machine reaches by the same name.
        target: Folder of artefacts, likewise: `a/b.safetensors` becomes
            `a/b.kvc.safetensors`.
        options: See `kvcompress.options.CompressArguments`. A file with a tensor that misses a
            bound that was given is reported as failed, and there is no artefact.
        pattern: Shell pattern of the names below `source`.
        workers: How many at once; None for as many as Ray finds processors for.
        address: A Ray cluster; None for this machine.

    Returns:
        An outcome for each file, by name.

    Raises:
        ImportError: Ray Data is not installed.
        OSError: A folder cannot be reached.
    """
    import ray.data  # type: ignore[import-not-found,unused-ignore]

    names = _Folder(source).names(pattern)
    if not names:
        return []
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    most = max(1, int(ray.cluster_resources().get("CPU", 1)) - 1)
    count = min(workers or most, len(names))
    data = ray.data.from_items([{"name": name} for name in names], override_num_blocks=len(names))
    arguments = (source, target, options)
    pool = ray.data.ActorPoolStrategy(size=count)
    results = data.map(Worker, fn_constructor_args=arguments, compute=pool, num_cpus=1)
    outcomes = [Outcome(**cast("dict[str, Any]", row)) for row in results.iter_rows()]
    return sorted(outcomes, key=lambda outcome: outcome.name)


def table(outcomes: Iterable[Outcome]) -> str:
    """Returns a summary: a line for each file, and their sum."""
    rows: list[tuple[str, ...]] = [
        ("file", "status", "bytes before", "after", "ratio", "SNR dB", "verdict")
    ]
    before = after = 0
    outcomes = list(outcomes)
    for outcome in outcomes:
        before += outcome.original_size_bytes
        after += outcome.compressed_size_bytes
        snr_db = "" if outcome.snr_db is None else f"{outcome.snr_db:.2f}"
        verdict = {True: "passed", False: "missed", None: outcome.message}[outcome.passed]
        rows.append(_row(printable(outcome.name), outcome, snr_db, printable(verdict)))
    counts = {outcome.status: 0 for outcome in outcomes}
    for outcome in outcomes:
        counts[outcome.status] += 1
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    total = Outcome("", f"{len(outcomes)} files", before, after)
    rows.append(_row("total", total, "", said))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = ("  ".join([*map(str.ljust, row, widths), row[6]]).rstrip() for row in rows)
    return "\n".join(lines)


def _row(name: str, outcome: Outcome, snr_db: str, verdict: str) -> tuple[str, ...]:
    """Returns the cells of a line."""
    before, after = outcome.original_size_bytes, outcome.compressed_size_bytes
    ratio = f"{before / after:.2f}" if after else ""
    return (name, outcome.status, str(before), str(after), ratio, snr_db, verdict)


def _digest(path: Path) -> str:
    """Returns the XXH3-128 of a file."""
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            state.update(chunk)
    return state.hexdigest()


def main(arguments: Sequence[str]) -> int:
    """Runs the command line; 0 when no file failed, else 1."""
    parser = argparse.ArgumentParser(prog="python -m kvcompress.batch", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("source", help="folder of safetensors files: a path or a URI")
    parser.add_argument("target", help="folder of artefacts: a path or a URI")
    parser.add_argument("--codec", help="such as int4:64+zstd (default: auto, fast)")
    parser.add_argument("--min-snr-db", type=float, help="bound for every tensor; without: none")
    parser.add_argument("--pattern", default="*.safetensors", help="which names (%(default)s)")
    parser.add_argument("--workers", type=int, help="how many at once (default: all processors)")
    parser.add_argument("--address", help="a Ray cluster (default: this machine)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    flags = parser.parse_args(arguments)
    options: CompressArguments = {}
    if flags.codec is not None:
        options["codec"] = flags.codec
    if flags.min_snr_db is not None:
        options["min_snr_db"] = flags.min_snr_db
    try:
        outcomes = run(
            flags.source,
            flags.target,
            options,
            pattern=flags.pattern,
            workers=flags.workers,
            address=flags.address,
        )
    except ImportError as error:
        print(f"Error: {error}; it comes with: pip install 'ray[data]'", file=sys.stderr)
        return 1
    if flags.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        print(table(outcomes))
    return int(any(outcome.status == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
