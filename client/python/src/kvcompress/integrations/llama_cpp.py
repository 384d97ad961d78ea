# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compresses states of llama.cpp: slot files of llama-server, and those of llama-cpp-python.

    python -m kvcompress.integrations.llama_cpp compress slot.bin slot.kvc --head-dim 64 --codec klt
    python -m kvcompress.integrations.llama_cpp restore slot.kvc slot.bin

llama-server writes slot files to its `--slot-save-path`. Keys and values of each layer become
tensors; all else, such as tokens and positions, is kept bit for bit, and so are caches of types
that ggml quantizes (`--cache-type-k q8_0`). Only `save_state` and `load_state` need llama.cpp.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from kvcompress._client import Client
from kvcompress._foreign_files import ForeignFileError, parse_json, read_foreign
from kvcompress._output_file import check_output
from kvcompress._reports import CompressionResult
from kvcompress._sinks import FileSink
from kvcompress.errors import KVCompressError
from kvcompress.integrations import _exact
from kvcompress.integrations._contents import read_contents, size_of
from kvcompress.integrations._llama_state import (
    FLOATS,
    Form,
    Section,
    StateError,
    join,
    read,
    without,
)
from kvcompress.integrations._weights import content_of
from kvcompress.options import CompressArguments

_REST, _TOKENS = "state", "input_ids"
_FORM, _OWN = "llama_cpp.form", "llama_cpp.llama"
_MODEL = "llama_cpp.model"
_WHOLE = ("head_dim", "value_dim")
_COPIES = 4  # in memory at once: the state, its tensors, the message
_F32_BYTES, _CELL_BYTES, _REST_BYTES = 4, 64, 1 << 20
_UNSIGNED: Mapping[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}

Bytes = npt.NDArray[np.uint8]
StrPath = str | Path


def compress(
    client: Client,
    state: StrPath | bytes,
    output: StrPath | None = None,
    *,
    head_dim: int,
    value_dim: int | None = None,
    overwrite: bool = False,
    timeout: float | None = None,
    **options: Unpack[CompressArguments],
) -> CompressionResult:
    """Compresses a state.

    Args:
        client: Calls the service.
        state: The path of a slot or session file, or the bytes of one, or what
            `llama_state_get_data` returned.
        output: Path for the artefact; None returns it as bytes.
        head_dim: Width of a head's keys, which no state says; see `head_dim_of`.
        value_dim: Width of a head's values, if it is another.
        overwrite: Whether an output that is there is replaced. The input never is.
        timeout: Seconds; None for the client's own.
        options: As `Client.compress` takes them.

    Raises:
        KVCompressError: The call failed.
        OSError: A file cannot be read or written.
        StateError: It is no state, or of another version of llama.cpp's formats, or has no heads
            of these widths.
    """
    if output is not None and not isinstance(state, bytes):
        check_output(output, state, overwrite=overwrite)
    source = _source(_read(state), (head_dim, value_dim or head_dim), {}, {})
    return _exact.compress(client, source, output, overwrite=overwrite, timeout=timeout, **options)


def restore(
    client: Client,
    artefact: StrPath | bytes,
    output: StrPath | None = None,
    *,
    overwrite: bool = False,
    expected_labels: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> bytes:
    """Restores a state, after every check; writes it too, if there is a path.

    Args:
        client: Calls the service.
        artefact: Its path, or its bytes.
        output: Path for the state; None for none.
        overwrite: Whether an output that is there is replaced. The artefact never is.
        expected_labels: Labels that the artefact must have.
        timeout: Seconds; None for the client's own.

    Raises:
        KVCompressError: The call failed; DataLossError for an artefact that is damaged, or has
            other labels; AlreadyExistsError for an output that is there.
        OSError: A file cannot be read or written.
        StateError: The artefact is not of a state.
    """
    if output is not None:
        check_output(
            output, *([] if isinstance(artefact, bytes) else [artefact]), overwrite=overwrite
        )
    state, _, _ = _restored(client, artefact, expected_labels, timeout)
    if output is not None:
        with FileSink(output, source=artefact, overwrite=overwrite) as sink:
            sink.write(0, state)
            sink.commit()
    return state


def save_state(
    client: Client,
    llama: Any,  # noqa: ANN401
    output: StrPath,
    *,
    timeout: float | None = None,
    **options: Unpack[CompressArguments],
) -> CompressionResult:
    """Saves the state of a `llama_cpp.Llama`, bound to its model.

    Args:
        client: Calls the service.
        llama: The model, after `eval` or a completion.
        output: Path for the artefact, which takes the place of one that is there.
        timeout: Seconds; None for the client's own.
        options: As `Client.compress` takes them.

    Raises:
        KVCompressError: The call failed.
        OSError: The artefact cannot be written, or the file of the model not be read.
        StateError: As `compress`.
    """
    state = llama.save_state()
    tokens = np.asarray(state.input_ids[: state.n_tokens], "<i4")
    own = {_OWN: json.dumps({"n_tokens": int(state.n_tokens), "seed": int(state.seed)})}
    widths = head_dim_of(llama.metadata)
    source = _source(state.llama_state, widths, {_TOKENS: tokens.view(np.uint8)}, own)
    options["labels"] = {**(options.get("labels") or {}), _MODEL: _model(llama)}
    return _exact.compress(client, source, output, overwrite=True, timeout=timeout, **options)


def load_state(
    client: Client,
    llama: Any,  # noqa: ANN401
    artefact: StrPath | bytes,
    *,
    expected_labels: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> None:
    """Loads what `save_state` saved. The next tokens follow those that were evaluated.

    Raises:
        KVCompressError: The call failed; DataLossError for an artefact that is damaged, of another
            model or other weights, or has other labels. The model is as it was.
        OSError: The artefact, or the file of the model, cannot be read.
        RuntimeError: llama.cpp does not take the state, as when its context is too small.
        StateError: The artefact is not of such a state, or larger than one of this context.
    """
    labels = {**(expected_labels or {}), _MODEL: _model(llama)}
    data, most = _read(artefact), _most_bytes(llama)
    size = size_of(read_contents(data).kinds)
    if size > most:
        raise StateError(
            f"the artefact is of {size} bytes, and a state of a context of {llama.n_ctx()} tokens "
            f"has up to {most}"
        )
    state, tensors, metadata = _restored(client, data, labels, timeout)
    if _OWN not in metadata or _TOKENS not in tensors:
        raise StateError("the artefact is not one of save_state")
    try:
        own = parse_json(metadata[_OWN])
        tokens, seed, count = tensors[_TOKENS].view("<i4"), int(own["seed"]), int(own["n_tokens"])
    except (ValueError, TypeError, KeyError) as error:
        raise StateError(f"the artefact is not one of save_state: {error!r}") from error
    if not len(tokens) == count <= llama.n_ctx():
        raise StateError(
            f"{count} tokens, of which {len(tokens)} have numbers, are not those of a context of "
            f"{llama.n_ctx()}"
        )
    ids = np.zeros(llama.n_ctx(), np.intc)
    ids[: len(tokens)] = tokens
    llama.load_state(
        SimpleNamespace(
            scores=np.zeros_like(llama.scores[:count]),
            input_ids=ids,
            n_tokens=count,
            llama_state=state,
            llama_state_size=len(state),
            seed=seed,
        )
    )


def head_dim_of(metadata: Mapping[str, str]) -> tuple[int, int]:
    """Returns the widths of a head's keys and values.

    Args:
        metadata: Of a GGUF file, as `llama_cpp.Llama.metadata` has it.

    Raises:
        StateError: It does not say.
    """
    name = metadata.get("general.architecture", "")
    try:
        whole = int(metadata[f"{name}.embedding_length"])
        default = whole // int(metadata[f"{name}.attention.head_count"])
        keys = int(metadata.get(f"{name}.attention.key_length", default))
        return keys, int(metadata.get(f"{name}.attention.value_length", default))
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise StateError(f"the model does not say how wide its heads are: {error!r}") from error


def _read(source: StrPath | bytes) -> bytes:
    """Returns the bytes of a file, of which several copies fit into memory.

    Raises:
        OSError: It cannot be read.
        StateError: It is no file, or too large.
    """
    if isinstance(source, bytes):
        return source
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return read_foreign(os.path.realpath(source), memory // _COPIES)
    except ForeignFileError as error:
        raise StateError(str(error)) from error


def _most_bytes(llama: Any) -> int:  # noqa: ANN401
    """Returns the most that the state of a full context takes: all heads of keys, in F32."""
    name = llama.metadata.get("general.architecture", "")
    try:
        layers = int(llama.metadata[f"{name}.block_count"])
        heads = int(llama.metadata[f"{name}.attention.head_count"])
    except (KeyError, ValueError) as error:
        raise StateError(f"the model does not say how large a state is: {error!r}") from error
    token = layers * heads * sum(head_dim_of(llama.metadata)) * _F32_BYTES + _CELL_BYTES
    return int(llama.n_ctx()) * token + _REST_BYTES


def _model(llama: Any) -> str:  # noqa: ANN401
    """Returns the identity of a model: what its file says of it, its weights, and a LoRA adapter.

    Raises:
        OSError: A file of it is not there any more.
    """
    adapter = getattr(llama, "lora_path", None)
    found = {
        "metadata": llama.metadata,
        "weights": content_of(llama.model_path),
        "adapter": adapter and content_of(adapter),
        "scale": adapter and getattr(llama, "lora_scale", None),
    }
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _source(
    state: bytes,
    widths: tuple[int, int],
    more: Mapping[str, Bytes],
    metadata: Mapping[str, str],
) -> bytes:
    """Returns a state as a safetensors file."""
    form, sections = read(state)
    parts = {section.name: _tensor(state, section, widths) for section in sections}
    rest = np.frombuffer(without(state, sections), np.uint8)
    for name, array in {_REST: rest, **more}.items():
        parts[name] = ("U8", array)
    header: dict[str, Any] = {"__metadata__": {_FORM: json.dumps(asdict(form)), **metadata}}
    end = 0
    for name, (dtype, array) in parts.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    arrays = (array.tobytes() for _, array in parts.values())
    return b"".join((len(text).to_bytes(8, "little"), text, *arrays))


def _tensor(
    state: bytes, section: Section, widths: tuple[int, int]
) -> tuple[str, npt.NDArray[Any]]:
    """Returns a section as a tensor [1, heads, tokens, head_dim], with its type; or as bytes.

    Raises:
        StateError: It has no heads of the width.
    """
    raw = np.frombuffer(state, np.uint8, section.size, section.begin)
    if section.kind not in FLOATS:
        return "U8", raw.reshape(section.cells, section.row_bytes)
    dtype, size = FLOATS[section.kind]
    width = widths[section.name.endswith("value")]
    heads, odd = divmod(section.row_bytes // size, width)
    if odd or width < 1:
        raise StateError(
            f"{section.name} has {section.row_bytes // size} channels: no whole heads of {width}"
        )
    numbers = raw.view(_UNSIGNED[size])
    if section.transposed:
        shaped = numbers.reshape(heads, width, section.cells).transpose(0, 2, 1)
    else:
        shaped = numbers.reshape(section.cells, heads, width).transpose(1, 0, 2)
    return dtype, shaped[None]


def _content(section: Section, array: npt.NDArray[Any]) -> bytes:
    """Returns a section from its tensor.

    Raises:
        StateError: The tensor has another shape.
    """
    if section.kind not in FLOATS:
        return bytes(array.tobytes())
    if array.ndim != len("bhtd") or array.shape[0] != 1 or array.shape[2] != section.cells:
        raise StateError(f"{section.name} has the shape {array.shape}")
    order = (0, 2, 1) if section.transposed else (1, 0, 2)
    return bytes(array[0].transpose(order).tobytes())


def _restored(
    client: Client,
    artefact: StrPath | bytes,
    labels: Mapping[str, str] | None,
    timeout: float | None,
) -> tuple[bytes, Mapping[str, Any], Mapping[str, str]]:
    """Returns a state, all tensors and the metadata of an artefact."""
    result = client.decompress(artefact, expected_labels=labels, timeout=timeout)
    tensors, metadata = result.tensors or {}, result.metadata or {}
    if _FORM not in metadata or _REST not in tensors:
        raise StateError("the artefact is not of a state of llama.cpp")

    def content(section: Section) -> bytes:
        if section.name not in tensors:
            raise StateError(f"the artefact has no {section.name}")
        return _content(section, tensors[section.name])

    try:
        form = Form(**parse_json(metadata[_FORM]))
    except (ValueError, TypeError) as error:
        raise StateError(f"the artefact is not of a state of llama.cpp: {error!r}") from error
    return join(tensors[_REST].tobytes(), form, content), tensors, metadata


def main(arguments: list[str] | None = None) -> int:
    """Compresses or restores a file."""
    parser = argparse.ArgumentParser("python -m kvcompress.integrations.llama_cpp")
    parser.add_argument("--server", help="address of a service; without, one is started")
    commands = parser.add_subparsers(dest="command", required=True)
    small = commands.add_parser("compress", help="a slot or session file of llama.cpp")
    small.add_argument("--head-dim", type=int, required=True, help="width of a head's keys")
    small.add_argument("--value-dim", type=int, help="width of a head's values, if another")
    small.add_argument("--codec", default="auto")
    large = commands.add_parser("restore", help="an artefact that compress wrote")
    for command in (small, large):
        command.add_argument("input", type=Path)
        command.add_argument("output", type=Path)
        command.add_argument(
            "--overwrite", action="store_true", help="replace a file that is there"
        )
    given = parser.parse_args(arguments)
    try:
        with Client(given.server) as client:
            if given.command == "restore":
                restore(client, given.input, given.output, overwrite=given.overwrite)
                return 0
            options = {name: getattr(given, name) for name in ("codec", *_WHOLE)}
            result = compress(
                client, given.input, given.output, overwrite=given.overwrite, **options
            )
    except (KVCompressError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    report = result.report
    sys.stdout.write(f"{report.codec}: {report.compression_ratio:.2f} times smaller\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
