# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A serde of LMCache: chunks are stored as artefacts, and loaded after every check.

Register it in the process that runs LMCache, before its configuration is read:

    kvcompress.integrations.lmcache.register()

and name it in an L2 adapter:

    {"type": "fs", "base_path": "/cache",
     "serde": {"type": "kvcompress", "codec": "int4-hadamard", "head_dim": 128}}

A chunk's key (model, hash, rank, group, salt) is bound to its artefact as labels: what is
loaded under another key is refused, as are damaged bytes. LMCache then takes it for a miss.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

import torch  # type: ignore[import-not-found,unused-ignore]
from lmcache.v1.distributed.serde import (  # type: ignore[import-not-found,unused-ignore]
    AsyncSerdeProcessor,
    Deserializer,
    SerdeProcessor,
    Serializer,
    register_serde_factory,
)

from kvcompress._client import Client
from kvcompress.options import CompressArguments, codec_string
from kvcompress.payload import payload_size

_LENGTH = struct.Struct("<Q")
_DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
# What the header of an artefact takes at most, with room: for the file, and for a tensor.
_FILE_BYTES, _TENSOR_BYTES = 8192, 512
_FORMATS = {"KV_2LTD": ("key", "value"), "KV_MLA_FMT": ("latent",)}


class Layout(NamedTuple):
    """How LMCache's tensors hold keys and values. Declared, never guessed.

    Attributes:
        format: `KV_2LTD`, [2, layers, tokens, heads * head_dim] with keys first, or
            `KV_MLA_FMT`, [1, layers, tokens, width], as LMCache names them.
        head_dim: Width of a head; None to take all heads for one.
    """

    format: str = "KV_2LTD"
    head_dim: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """What the first dimension runs over."""
        return _FORMATS[self.format]

    def check(self, shape: tuple[int, ...]) -> None:
        """Checks a shape.

        Raises:
            ValueError: It is not one of this layout.
        """
        if len(shape) != 4 or shape[0] != len(self.parts):
            raise ValueError(f"{tuple(shape)} is not {self.format}")
        if self.head_dim is not None and shape[3] % self.head_dim:
            raise ValueError(f"{shape[3]} is not a multiple of head_dim {self.head_dim}")

    def split(self, states: torch.Tensor, first_layer: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Gives views [1, heads, tokens, head_dim] of a tensor, with names."""
        self.check(tuple(states.shape))
        tokens, width = states.shape[2:]
        head_dim = self.head_dim or width
        for layer in range(states.shape[1]):
            for index, part in enumerate(self.parts):
                heads = states[index, layer].view(tokens, width // head_dim, head_dim)
                yield f"layer_{first_layer + layer}_{part}", heads.permute(1, 0, 2)[None]


class KVCompressSerializer(Serializer):  # type: ignore[misc,unused-ignore]
    """Compresses the tensors of a memory object into a buffer. Thread safe."""

    def __init__(self, client: Client, layout: Layout, options: CompressArguments) -> None:
        """Takes what to compress with, and how; see `register`."""
        self._client, self._layout = client, layout
        self._options: CompressArguments = {**options, "report_tensors": False}

    def serialize(self, src: Any, dst: Any, key: Any = None) -> int:  # noqa: ANN401
        """Compresses `src` into `dst`.

        Args:
            src: A memory object with one tensor or several of the layout.
            dst: A memory object of bytes, as large as `estimate_serialized_size` says.
            key: The object's key, bound to the artefact; None binds nothing.

        Returns:
            Bytes written: the artefact's, and 8 for its length.

        Raises:
            KVCompressError: The call failed.
            ValueError: The layout is another, or the buffer is too small.
        """
        tensors = dict(_views(src, self._layout))
        options: CompressArguments = {**self._options, "labels": _labels(key)}
        artefact = self._client.compress(tensors, **options).artefact or b""
        buffer = dst.tensor.flatten().view(torch.uint8)
        size = _LENGTH.size + len(artefact)
        if size > buffer.numel():
            raise ValueError(f"{size} bytes do not fit into the {buffer.numel()} of the buffer")
        data = bytearray(_LENGTH.pack(len(artefact)) + artefact)
        buffer[:size].copy_(torch.frombuffer(data, dtype=torch.uint8))
        return size

    def estimate_serialized_size(self, layout_desc: Any) -> int:  # noqa: ANN401
        """Gives the bytes that `serialize` needs at most; what it writes is what is stored.

        Args:
            layout_desc: Shapes and types of the tensors.

        Raises:
            ValueError: A shape is not one of the layout, or a type cannot be compressed.
        """
        size = _LENGTH.size + _FILE_BYTES
        for shape, dtype in zip(layout_desc.shapes, layout_desc.dtypes, strict=True):
            self._layout.check(tuple(shape))
            if dtype not in _DTYPES:
                raise ValueError(f"{dtype} cannot be compressed")
            parts, layers, *rest = map(int, shape)
            size += parts * layers * (_TENSOR_BYTES + self._bound(tuple(rest), _DTYPES[dtype]))
        return size

    def _bound(self, shape: tuple[int, ...], dtype: str) -> int:
        """Gives the most that a tensor's payload takes: no codec takes more than lossless."""
        codec = codec_string(self._options.get("codec", "int4"))
        for canonical in (codec, f"{codec}:64"):
            with suppress(ValueError):
                return payload_size(canonical, shape, dtype)
        return payload_size("lossless", shape, dtype)


class KVCompressDeserializer(Deserializer):  # type: ignore[misc,unused-ignore]
    """Restores the tensors of a memory object from a buffer. Thread safe."""

    def __init__(self, client: Client, layout: Layout) -> None:
        """Takes what to decompress with, and the layout of what comes back."""
        self._client, self._layout = client, layout

    def deserialize(self, src: Any, dst: Any, key: Any = None) -> None:  # noqa: ANN401
        """Decompresses `src` into `dst`, which changes only after every check.

        Args:
            src: A memory object that begins with what `serialize` wrote.
            dst: A memory object with the tensors of the layout.
            key: The object's key, which the artefact must carry; None checks none.

        Raises:
            KVCompressError: The call failed: DataLossError for bytes that are damaged or of
                another key.
            ValueError: The layout, the shapes or the types are others.
        """
        buffer = src.tensor.flatten().view(torch.uint8)
        size = int(buffer.numel())
        if size >= _LENGTH.size:
            (length,) = _LENGTH.unpack(buffer[: _LENGTH.size].cpu().numpy().tobytes())
        if size < _LENGTH.size or length > size - _LENGTH.size:
            raise ValueError("the buffer ends within the artefact")
        artefact = buffer[_LENGTH.size : _LENGTH.size + length].cpu().numpy().tobytes()
        result = self._client.decompress(artefact, expected_labels=_labels(key))
        restored, views = result.torch_tensors(), dict(_views(dst, self._layout))
        kinds = [
            {name: (tuple(each.shape), each.dtype) for name, each in tensors.items()}
            for tensors in (restored, views)
        ]
        if kinds[0] != kinds[1]:
            raise ValueError("the artefact holds other tensors than those to be restored")
        for name, view in views.items():
            view.copy_(restored[name])


def register(client: Client | None = None, name: str = "kvcompress") -> None:
    """Makes the serde known to LMCache.

    Its configuration takes `layout` (`KV_2LTD` or `KV_MLA_FMT`), `head_dim`, `max_workers`,
    and the options of `kvcompress.options.CompressArguments` but for `labels`.

    Args:
        client: Compresses and decompresses; None for one with a server of its own, started
            with the first serde and ended with the process.
        name: What `type` says in the configuration.

    Raises:
        ValueError: The name is taken.
    """
    clients = [] if client is None else [client]

    def create(kwargs: Mapping[str, object]) -> SerdeProcessor:
        options = {key: value for key, value in kwargs.items() if key != "type"}
        form = str(options.pop("layout", "KV_2LTD"))
        if form not in _FORMATS:
            raise ValueError(f"layout is {form!r}, not one of {', '.join(_FORMATS)}")
        head_dim = options.pop("head_dim", None)
        layout = Layout(form, None if head_dim is None else int(str(head_dim)))
        workers = int(str(options.pop("max_workers", 1)))
        unknown = options.keys() - CompressArguments.__annotations__.keys() | (
            options.keys() & {"labels", "report_tensors"}
        )
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: no such option")
        if not clients:
            clients.append(Client())
        return AsyncSerdeProcessor(
            KVCompressSerializer(clients[0], layout, cast("CompressArguments", options)),
            KVCompressDeserializer(clients[0], layout),
            max_workers=workers,
        )

    register_serde_factory(name, create)


def _views(memory: Any, layout: Layout) -> Iterator[tuple[str, torch.Tensor]]:  # noqa: ANN401
    """Gives views of all tensors of a memory object, with names."""
    form = memory.get_memory_format().name
    if form not in {"UNDEFINED", layout.format}:
        raise ValueError(f"the memory object is {form}, and {layout.format} is configured")
    first_layer = 0
    for index, shape in enumerate(memory.get_shapes()):
        yield from layout.split(memory.get_tensor(index), first_layer)
        first_layer += shape[1]


def _labels(key: Any) -> dict[str, str]:  # noqa: ANN401
    """Gives the labels that bind an object's key."""
    if key is None:
        return {}
    return {
        "lmcache.model": key.model_name,
        "lmcache.chunk": key.chunk_hash.hex(),
        "lmcache.rank": str(key.kv_rank),
        "lmcache.group": str(getattr(key, "object_group_id", 0)),
        "lmcache.salt": getattr(key, "cache_salt", ""),
    }
