# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A serde of LMCache: chunks become artefacts in slots of one size, for LMCache's own adapters.

LMCache's `fs` adapters read exactly as many bytes as the serde announced before it compressed.
So each chunk gets a slot of fixed size, and the codec with the highest quality that fits.
`kvcompress.integrations.lmcache` has no slots, and is the better choice where it can be used.

LMCache has no entry point for serdes. `StockAdapter` provides one: as a plugin, it is made before
its serde is looked for, and returns LMCache's own adapter:

    lmcache server ... --l2-adapter '{"type": "plugin",
      "module_path": "kvcompress.integrations.lmcache_serde", "class_name": "StockAdapter",
      "adapter_params": {"type": "fs", "base_path": "/cache"},
      "serde": {"type": "kvcompress", "ratio": 4, "layout": "kv", "head_dim": 128}}'
"""

import logging
import math
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from lmcache.v1.distributed.l2_adapters.base import (  # type: ignore[import-not-found,unused-ignore]
    L2AdapterInterface,
)
from lmcache.v1.distributed.l2_adapters.config import (  # type: ignore[import-not-found,unused-ignore]
    get_l2_adapter_config_class,
)
from lmcache.v1.distributed.l2_adapters.factory import (  # type: ignore[import-not-found,unused-ignore]
    create_l2_adapter_from_registry,
)
from lmcache.v1.distributed.serde import (  # type: ignore[import-not-found,unused-ignore]
    AsyncSerdeProcessor,
    Deserializer,
    SerdeProcessor,
    Serializer,
    register_serde_factory,
)

from kvcompress._info import CodecInfo
from kvcompress.errors import FailedPreconditionError, KVCompressError
from kvcompress.integrations._exact import names_not_finite
from kvcompress.integrations._hopeless import Hopeless, is_lasting
from kvcompress.integrations._lmcache_chunks import kinds_of, labels_of, read, write
from kvcompress.integrations._lmcache_service import Parameters, Service, ServiceDownError
from kvcompress.integrations._lmcache_store import name_of
from kvcompress.integrations._logs import prepare_logs

_LOG = logging.getLogger(__name__)
_LENGTH = struct.Struct("<Q")
# No cache was seen that these make smaller by more than this.
_AT_MOST = {"lossless": 2.0, "int8": 2.0}


class SlotTooSmallError(ValueError):
    """No codec makes a chunk small enough for its slot."""


def ladder(codecs: Iterable[CodecInfo]) -> tuple[str, ...]:
    """Returns what is tried for a slot, from the highest quality to the lowest.

    Args:
        codecs: Those that the service lists, of which the lossless ones, `int8` and the presets of
            `klt` are tried.
    """
    by_name = {codec.name: codec for codec in codecs}
    found = [name for name, codec in by_name.items() if codec.lossless]
    found += [name for name in ("int8",) if name in by_name]
    if "klt" in by_name:
        found += [f"klt:{preset}" for preset in by_name["klt"].presets]
    return tuple(found)


class Slots:
    """How large the slots are, and what is tried for them.

    Attributes:
        codecs: From the highest quality to the lowest; None for `ladder` of the service.
    """

    def __init__(
        self, ratio: float | None, max_bytes: int | None, codecs: tuple[str, ...] | None = None
    ) -> None:
        """Takes either how much smaller than a chunk its slot is, or the bytes of a slot.

        Raises:
            ValueError: Both or neither are given, or one is not positive, or there is no codec.
        """
        if (ratio is None) == (max_bytes is None):
            raise ValueError("either ratio or max_bytes is needed")
        if (ratio or max_bytes or 0) <= 0 or codecs == ():
            raise ValueError("ratio and max_bytes have to be positive, and codecs not empty")
        self._ratio, self._max_bytes = ratio, max_bytes
        self.codecs = codecs

    def size(self, source_bytes: int) -> int:
        """Returns the bytes of the slot of a chunk."""
        if self._max_bytes is not None:
            return self._max_bytes
        return max(_LENGTH.size, math.floor(source_bytes / (self._ratio or 1)))


class KVCompressSerializer(Serializer):  # type: ignore[misc,unused-ignore]
    """Compresses a chunk into its slot. Thread safe."""

    def __init__(self, service: Service, parameters: Parameters, slots: Slots) -> None:
        """Takes what to compress with, and how."""
        self._service, self._parameters, self._slots = service, parameters, slots
        self._codecs = slots.codecs
        self._hopeless = Hopeless()  # codecs

    def serialize(self, src: Any, dst: Any, key: Any) -> int:  # noqa: ANN401
        """Compresses `src` into `dst`, and fills the rest with zeros.

        Args:
            src: A memory object of the layout that is configured.
            dst: A memory object of bytes, of the size that `estimate_serialized_size` says.
            key: The chunk's key, which is bound to the artefact.

        Returns:
            The size of the slot.

        Raises:
            KVCompressError: The call failed.
            ServiceDownError: The service does not answer.
            SlotTooSmallError: No codec makes it small enough.
            ValueError: The layout is another.
        """
        tensors, layout = read(src, self._parameters.layout)
        labels = labels_of(key, self._parameters.identity)
        source = sum(each.numel() * each.element_size() for each in tensors.values())
        buffer = dst.tensor.flatten().view(torch.uint8)
        room = int(buffer.numel()) - _LENGTH.size
        smallest = None
        if self._codecs is None:
            self._codecs = ladder(self._service.codecs())
        for codec in self._codecs:
            if source > _AT_MOST.get(codec, math.inf) * room:
                continue
            artefact = self._compress(tensors, layout, labels, codec)
            if len(artefact) <= room:
                data = bytearray(_LENGTH.pack(len(artefact)) + artefact)
                buffer[: len(data)].copy_(torch.frombuffer(data, dtype=torch.uint8))
                buffer[len(data) :].zero_()
                return int(buffer.numel())
            smallest = min(len(artefact), smallest or len(artefact))
            if names_not_finite(tensors):
                break  # all codecs keep it without loss
        raise SlotTooSmallError(
            f"a chunk of {source} bytes does not fit into a slot of {room}; the smallest "
            f"artefact has {smallest}: lower ratio, raise max_bytes, or add codecs"
        )

    def _compress(
        self, tensors: Mapping[str, Any], layout: str, labels: Mapping[str, str], codec: str
    ) -> bytes:
        """Compresses with a codec, unless that cannot succeed for now."""
        if self._hopeless.includes(codec):
            raise ServiceDownError(f"nothing can be compressed with {codec}, and is not for now")
        try:
            return self._service.compress(tensors, layout, labels, codec)
        except KVCompressError as error:
            if is_lasting(error):
                self._hopeless.note(codec)
            raise

    def estimate_serialized_size(self, layout_desc: Any) -> int:  # noqa: ANN401
        """Returns the size of the slot, all of which is stored.

        Raises:
            ValueError: A shape is not one of the layout.
        """
        source = 0
        for shape, dtype in zip(layout_desc.shapes, layout_desc.dtypes, strict=True):
            self._parameters.layout.notation(tuple(shape))
            source += math.prod(shape) * dtype.itemsize
        return self._slots.size(source)


class KVCompressDeserializer(Deserializer):  # type: ignore[misc,unused-ignore]
    """Restores a chunk from its slot. Thread safe."""

    def __init__(self, service: Service, parameters: Parameters) -> None:
        """Takes what to decompress with, and the layout of what comes back."""
        self._service, self._parameters = service, parameters
        self._hopeless = Hopeless()  # chunks

    def deserialize(self, src: Any, dst: Any, key: Any) -> None:  # noqa: ANN401
        """Decompresses `src` into `dst`, which changes only after every check.

        Args:
            src: A memory object that begins with what `serialize` wrote.
            dst: A memory object of the layout that is configured.
            key: The chunk's key, which the artefact must carry.

        Raises:
            KVCompressError: The call failed: DataLossError for bytes that are damaged or of
                another key.
            ServiceDownError: The service does not answer.
            ValueError: The layout, the shapes or the types are others.
        """
        try:
            buffer = src.tensor.flatten().view(torch.uint8).cpu().numpy().tobytes()
            size = _LENGTH.unpack_from(buffer)[0] if len(buffer) >= _LENGTH.size else len(buffer)
            if size > len(buffer) - _LENGTH.size:
                raise ValueError("the slot ends within the artefact")
            artefact = buffer[_LENGTH.size : _LENGTH.size + size]
            kinds = kinds_of(dst, self._parameters.layout)
            labels = labels_of(key, self._parameters.identity)
            name = name_of(labels)
            if self._hopeless.includes(name):
                raise ServiceDownError("the chunk cannot be restored, and is not for now")
            try:
                restored = self._service.restore(artefact, labels, kinds)
            except FailedPreconditionError:  # as where the server does not have its profile
                self._hopeless.note(name)
                raise
            write(restored, dst, self._parameters.layout)
        except (KVCompressError, ServiceDownError, ValueError) as error:
            _LOG.warning("loading chunk %s failed: %s", key.chunk_hash.hex(), error)
            raise


class _Processor(AsyncSerdeProcessor):  # type: ignore[misc,unused-ignore]
    """Ends with its service."""

    def __init__(self, service: Service, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Takes the service and what AsyncSerdeProcessor takes."""
        super().__init__(*args, **options)
        self._service = service

    def close(self) -> None:
        """Ends what is under way, and then the service."""
        super().close()
        self._service.close()


def create(kwargs: Mapping[str, Any]) -> SerdeProcessor:
    """Makes a serde from its configuration.

    Args:
        kwargs: `ratio` (default 4) or `max_bytes`; `codecs`, a list from the highest quality to
            the lowest (default: `ladder` of what the service lists, which has to let this client
            call GetServerInfo), or `codec`, one; `max_workers` (default 1); and the layout and the
            service as `Parameters` in `_lmcache_service.py` documents them.

    Raises:
        OSError: No server can be started.
        TypeError: A parameter has another type, or a name that there is not.
        ValueError: A parameter has a value that it cannot have.
    """
    prepare_logs()
    given = {name: value for name, value in kwargs.items() if name != "type"}
    workers = int(given.pop("max_workers", 1))
    max_bytes = given.pop("max_bytes", None)
    ratio = given.pop("ratio", None if max_bytes is not None else 4)
    codecs = given.pop("codecs", [given["codec"]] if "codec" in given else None)
    slots = Slots(ratio, max_bytes, None if codecs is None else tuple(codecs))
    parameters = Parameters.parse(given, storage=False)
    service = Service(parameters)
    return _Processor(
        service,
        KVCompressSerializer(service, parameters, slots),
        KVCompressDeserializer(service, parameters),
        max_workers=workers,
    )


class StockAdapter(L2AdapterInterface):  # type: ignore[misc,unused-ignore]
    """Is never made: returns LMCache's own adapter, once this module has registered the serde."""

    def __new__(cls, params: dict[str, Any], l1_memory_desc: object = None) -> L2AdapterInterface:
        """Makes the adapter of `adapter_params`, which are those of `--l2-adapter`.

        Raises:
            ValueError: LMCache has no such adapter, or it does not take the parameters.
        """
        config = get_l2_adapter_config_class(str(params.get("type"))).from_dict(params)
        return create_l2_adapter_from_registry(config, l1_memory_desc)


# Not twice where the module is imported a second time under another name.
with suppress(ValueError):
    register_serde_factory("kvcompress", create)
