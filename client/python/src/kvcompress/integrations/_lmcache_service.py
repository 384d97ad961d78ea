# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""How LMCache's adapter and serde reach the service, and what their configuration says."""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress._client import Client
from kvcompress._info import CodecInfo
from kvcompress.errors import DeadlineExceededError, UnavailableError
from kvcompress.integrations._contents import Kinds, read_contents, size_of
from kvcompress.integrations._exact import compress
from kvcompress.integrations._exchange import Exchange
from kvcompress.integrations._lmcache_chunks import Form, Layout
from kvcompress.integrations._time_outs import to_restore, to_save
from kvcompress.options import CompressArguments
from kvcompress.store import OPTION_NAMES

_LOG = logging.getLogger(__name__)
_LAYOUT = ("head_dim", "rope_dim", "block_tokens", "element_type")
_SERVICE: dict[str, type | tuple[type, ...]] = {
    "server": str,
    "codec": str,
    "effort": str,
    "profile": str,
    "profile_directory": str,
    "rope_theta": (int, float),
    "timeout": (int, float),
    "store_timeout": (int, float),
    "retry_after": (int, float),
    "identity": dict,
}
_ADAPTER: dict[str, type | tuple[type, ...]] = {
    "path": str,
    "url": str,
    "storage_options": dict,
    "workers": int,
    **dict.fromkeys(OPTION_NAMES, (int, float, str)),
}
# A server that is gone is looked for this often; gRPC itself would wait up to two minutes.
_RECONNECT_MS = 1000


class ServiceDownError(Exception):
    """The service does not answer, or did not a moment ago."""


@dataclass(frozen=True)
class Parameters:
    """What the configuration of the adapter says.

    Attributes:
        layout: From `layout` (`kv`, `cpu_attn` or `mla`; required), `head_dim`, `rope_dim`,
            `block_tokens` and `element_type`.
        path: A folder; or
        url: of a file system of fsspec, such as `s3://bucket/folder`, or of a server that speaks
            Redis's protocol, such as `redis://host:6379/0`. One of the two is needed.
        storage_options: For fsspec, such as credentials; or for `redis.Redis.from_url`, with
            `prefix` (default `kvcompress:`) of the keys and `ttl`, seconds after which they
            expire (default None).
        server: Address of the service, such as `unix:/run/kvcompress/kv.sock`; None for a
            server of its own.
        codec: As `kvcompress.options.CompressArguments` has it. Default `klt`.
        effort: As there. Default `fast`.
        profile: The profile of the model: its name, digest or label on the server, as there.
            For codecs `klt:PRESET`, but `klt:contract`.
        profile_directory: Without `server`: where the server of its own finds profiles.
        rope_theta: As there. Default None.
        timeout: Seconds that restoring a chunk may take. Default 1, and 1 for each 25 MB of it.
        store_timeout: Seconds that compressing a chunk may take, which nobody waits for.
            Default 30, and 1 for each 2 MB.
        retry_after: Seconds without a call once the service did not answer. Default 5.
        identity: What chunks depend on besides what LMCache's key says and what is known of the
            weights, by name, such as `{"weights": "2026-11-26"}`; bound to each artefact.
        workers: Chunks that are loaded at once. Default 4.
        bound: Of the folder: `capacity_bytes`, `capacity_fraction`, `high_watermark`,
            `low_watermark` and `ttl`, as `kvcompress.store.StoreOptions` has them.
    """

    layout: Layout
    path: str | None = None
    url: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    server: str | None = None
    codec: str = "klt"
    effort: str = "fast"
    profile: str | None = None
    profile_directory: str | None = None
    rope_theta: float | None = None
    timeout: float | None = None
    store_timeout: float | None = None
    retry_after: float = 5.0
    identity: Mapping[str, str] = field(default_factory=dict)
    workers: int = 4
    bound: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, params: Mapping[str, Any], *, storage: bool = True) -> Self:
        """Reads a configuration.

        Args:
            params: From JSON.
            storage: Whether it says where artefacts are kept.

        Raises:
            TypeError: A parameter has another type, or a name that there is not.
            ValueError: A parameter is missing, or has a value that it cannot have.
        """
        given = dict(params)
        shape = {name: given.pop(name) for name in _LAYOUT if name in given}
        form = cast("Form", given.pop("layout", None))
        known = {**_SERVICE, **(_ADAPTER if storage else {})}
        for name, value in given.items():
            if name not in known:
                raise TypeError(f"{name!r} is no parameter; there are {', '.join(sorted(known))}")
            if not isinstance(value, known[name]) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}, of the wrong type")
        bound = {name: given.pop(name) for name in OPTION_NAMES if name in given}
        result = cls(Layout(form, **shape), **given, bound=bound)
        if storage and (result.path is None) == (result.url is None):
            raise ValueError("either path or url is needed")
        for name in ("timeout", "store_timeout", "retry_after", "workers"):
            value = getattr(result, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {getattr(result, name)}, and has to be positive")
        return result


class Service:
    """The service, or for a while nothing once it did not answer. Thread safe."""

    def __init__(self, parameters: Parameters) -> None:
        """Connects, or starts a server.

        Raises:
            OSError: No server can be started.
        """
        self._parameters = parameters
        self._lock = threading.Lock()
        self._exchange: Exchange | None = self._open()
        self._down_until = 0.0

    def is_up(self) -> bool:
        """Returns whether calls would be tried."""
        with self._lock:
            return time.monotonic() >= self._down_until

    def compress(
        self,
        tensors: Mapping[str, torch.Tensor],
        layout: str,
        labels: Mapping[str, str],
        codec: str | None = None,
    ) -> bytes:
        """Returns the artefact of a chunk.

        Args:
            tensors: By name, in `layout`.
            layout: As FORMAT.md writes it.
            labels: To bind.
            codec: None for that of the configuration.

        Raises:
            KVCompressError: The call failed.
            ServiceDownError: The service does not answer.
        """
        parameters = self._parameters
        chosen = codec or parameters.codec
        options: CompressArguments = {
            "codec": chosen,
            "effort": cast("Any", parameters.effort),
            "layout": layout,
            "labels": labels,
            "report_tensors": False,
        }
        preset = chosen.removeprefix("klt:")
        if parameters.profile is not None and preset not in (chosen, "contract"):
            options["profile"] = parameters.profile
        if parameters.rope_theta is not None:
            options["rope_theta"] = parameters.rope_theta
        exchange = self._connected()
        try:
            size = sum(each.numel() * each.element_size() for each in tensors.values())
            timeout = to_save(size, parameters.store_timeout)
            result = compress(exchange.client, tensors, timeout=timeout, **options)
        except (UnavailableError, DeadlineExceededError) as error:
            raise self._down(exchange, error) from error
        return result.artefact or b""

    def codecs(self) -> tuple[CodecInfo, ...]:
        """Returns the codecs of the service.

        Raises:
            KVCompressError: The call failed.
            ServiceDownError: The service does not answer.
        """
        exchange = self._connected()
        try:
            timeout = to_restore(0, self._parameters.timeout)
            return exchange.client.server_info(timeout=timeout).codecs
        except (UnavailableError, DeadlineExceededError) as error:
            raise self._down(exchange, error) from error

    def restore(
        self, artefact: bytes, labels: Mapping[str, str], kinds: Kinds
    ) -> dict[str, torch.Tensor]:
        """Returns the tensors of an artefact, after every check.

        Args:
            artefact: Its bytes.
            labels: Those that it must have.
            kinds: The tensors that it must hold.

        Raises:
            KVCompressError: The call failed: DataLossError for what is damaged or has other
                labels.
            NotThisError: It holds other tensors. Nothing is restored.
            ServiceDownError: The service does not answer.
        """
        read_contents(artefact).check(kinds)
        exchange = self._connected()
        try:
            timeout = to_restore(size_of(kinds), self._parameters.timeout)
            return exchange.restore(artefact, timeout, expected_labels=labels)
        except (UnavailableError, DeadlineExceededError) as error:
            raise self._down(exchange, error) from error

    def close(self) -> None:
        """Closes the connection, and the server if it is the service's own."""
        with self._lock:
            exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client.close()

    def _open(self) -> Exchange:
        """Connects, or starts a server."""
        backoff = [
            ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
        ]
        # Once: LMCache and the engine know better what to do than to wait.
        client = Client(
            self._parameters.server,
            attempts=1,
            options=backoff,
            profile_directory=self._parameters.profile_directory,
        )
        return Exchange(client, spares=self._parameters.workers + 1)

    def _connected(self) -> Exchange:
        """Returns what calls the service, whose server is started again where it had ended.

        Raises:
            ServiceDownError: The service did not answer a moment ago, or cannot be started.
        """
        with self._lock:
            if time.monotonic() < self._down_until:
                raise ServiceDownError("the service did not answer a moment ago")
            if self._exchange is None:
                try:
                    self._exchange = self._open()
                except OSError as error:
                    self._down_until = time.monotonic() + self._parameters.retry_after
                    raise ServiceDownError(str(error)) from error
            return self._exchange

    def _down(self, exchange: Exchange, error: Exception) -> ServiceDownError:
        """Notes that the service does not answer."""
        with self._lock:
            self._down_until = time.monotonic() + self._parameters.retry_after
            own = self._parameters.server is None and self._exchange is exchange
            if own and isinstance(error, UnavailableError):
                # Ends with the last call that uses it; see _service.Service.failed.
                self._exchange = None
        _LOG.warning(
            "the service does not answer; no call for %g s: %s", self._parameters.retry_after, error
        )
        return ServiceDownError(str(error))
