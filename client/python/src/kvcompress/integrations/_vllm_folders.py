# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What vLLM's tier is made of: folders, events, and options of calls."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found,unused-ignore]
    Locality,
    Medium,
    OffloadingEvent,
)

from kvcompress.integrations import _vllm_layouts
from kvcompress.integrations._artefact_folder import ArtefactFolder, Content
from kvcompress.integrations._logs import prepare_logs
from kvcompress.integrations._pages import PageLayout
from kvcompress.integrations._vllm_adapters import Adapter, adapter_of
from kvcompress.integrations._vllm_chunks import block_of, group_of, key_of
from kvcompress.options import CompressArguments
from kvcompress.store import ArtefactStore, Event


class Events:
    """What vLLM reports to routers: chunks that this tier stored and removed. Thread safe."""

    def __init__(self, medium: Medium) -> None:
        """Begins with none."""
        self._medium = medium
        self._events: deque[tuple[list[bytes], bool]] = deque()

    def listen(self, folders: Iterable[ArtefactFolder]) -> None:
        """Listens to the folders of all groups."""
        for group, folder in enumerate(folders):
            folder.runs.subscribe(self._listener(group))

    def take(self, locality: Locality | None) -> Iterable[OffloadingEvent]:
        """Yields what happened since the last call."""
        while self._events:
            keys, removed = self._events.popleft()
            yield OffloadingEvent(keys, self._medium, removed, locality)

    def _listener(self, group: int) -> Any:  # noqa: ANN401
        """Returns a function that records the events of a group."""

        def note(event: Event) -> None:
            if event.blocks:
                keys = [key_of(block, group) for block in event.blocks]
                self._events.append((keys, event.action == "removed"))

        return note


def open_store(folder: str, options: Mapping[str, Any] | None) -> ArtefactStore:
    """Opens the store, which may have something to log.

    Raises:
        OSError: The folder cannot be used.
        TypeError: An option has a name that there is not, or another type.
        ValueError: An option is out of its range.
    """
    prepare_logs()
    return ArtefactStore(folder, options)


def options_of(codec: str, effort: str, profile: str | None) -> CompressArguments:
    """How artefacts are made."""
    options: CompressArguments = {"codec": codec, "report_tensors": False}
    options["effort"] = effort  # type: ignore[typeddict-item]
    if profile is not None:
        options["profile"] = profile
    return options


def layouts_of(groups: Iterable[dict[str, Any]], row_bytes: int) -> list[PageLayout]:
    """Returns the layout of each group of layers in rows of so many bytes.

    Raises:
        ValueError: One does not fit.
    """
    layouts = [PageLayout.of(group) for group in groups]
    for layout in layouts:
        layout.check_row(row_bytes)
    return layouts


class Folders:
    """The folders of the groups of layers, of the model and of each adapter. Thread safe."""

    def __init__(
        self,
        store: ArtefactStore,
        identity: Mapping[str, str],
        layouts: Sequence[PageLayout],
        tokens: int,
    ) -> None:
        """Makes those of the model, with artefacts of so many tokens."""
        self._store, self._identity = store, dict(identity)
        self._layouts, self._tokens = layouts, tokens
        self._lock = threading.Lock()
        self._events: Events | None = None
        self._made: dict[Adapter | None, list[ArtefactFolder]] = {None: self._make({})}

    def publish(self, events: Events) -> None:
        """Makes events listen to all folders, and to those of adapters that come."""
        with self._lock:
            self._events = events
            for folders in self._made.values():
                events.listen(folders)

    def of(self, req_context: Any) -> Sequence[ArtefactFolder] | None:  # noqa: ANN401
        """Returns the folder of each group for a request's adapter, if it has one.

        Returns:
            None where nothing says which weights the adapter has.
        """
        return self.of_adapter(adapter_of(req_context))

    def of_adapter(self, adapter: Adapter | None) -> Sequence[ArtefactFolder] | None:
        """Returns what `of` does."""
        if adapter is not None and adapter.weights is None:
            return None
        with self._lock:
            if adapter not in self._made:
                weights = adapter.weights if adapter is not None else ""
                self._made[adapter] = self._make({"adapter": str(weights)})
                if self._events is not None:
                    self._events.listen(self._made[adapter])
            return self._made[adapter]

    def are_there(self, keys: Sequence[bytes], req_context: Any) -> list[bool]:  # noqa: ANN401
        """Returns for each key whether there is an artefact."""
        folders = self.of(req_context)
        if folders is None:
            return [False] * len(keys)
        return [folders[group_of(key)].holds(block_of(key)) for key in keys]

    def _make(self, more: Mapping[str, str]) -> list[ArtefactFolder]:
        """Returns the folder of each group, for blocks that depend on more than the model."""
        folders = []
        for index, layout in enumerate(self._layouts):
            own = {**self._identity, **more, "engine": "vllm", "group": str(index)}
            own["shape"] = _shape(layout)
            content = Content(layout.kinds, max(1, self._tokens // layout.chunk_tokens))
            name = self._identity.get("model", "model")
            folders.append(ArtefactFolder(self._store, name, own, content))
        return folders


def _shape(layout: PageLayout) -> str:
    """Returns a digest of what an artefact depends on."""
    shape = asdict(layout)
    # How the pages lie in memory is nothing that an artefact depends on.
    for name in ("offsets", "page_bytes", "rank_bytes"):
        del shape[name]
    if layout.by_tokens:
        shape["heads"] *= shape.pop("ranks")
        del shape["axes"], shape["keys_transposed"]
    return _vllm_layouts.digest(shape)
