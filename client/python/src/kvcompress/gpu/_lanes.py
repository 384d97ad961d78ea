# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Streams in which the parts of an artefact are decoded side by side."""

from collections.abc import Callable, Iterable
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

LANES = 4
"""Parts of an artefact that are decoded side by side at most."""

Event = Any  # torch.cuda.Event, None on the CPU


class Lanes:
    """The streams of a device; on the CPU parts are decoded one after the other.

    Attributes:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        """Makes them when they are first needed."""
        self.device = device
        self._streams: list[Any] = []
        self._next = 0

    def launch(self, run: Callable[[], None], tensors: Iterable[torch.Tensor]) -> Event:
        """Launches a part after what the current stream has.

        Args:
            run: What launches the kernels of the part, on the current stream.
            tensors: That they write to, or read and that are not of the part.

        Returns:
            An event behind the part, which no stream waits for yet; None on the CPU.
        """
        if self.device.type != "cuda":
            run()
            return None
        if not self._streams:
            self._streams = [torch.cuda.Stream(self.device) for _ in range(LANES)]
        stream = self._streams[self._next % LANES]
        self._next += 1
        stream.wait_stream(torch.cuda.current_stream(self.device))
        try:
            with torch.cuda.stream(stream):
                run()
                event = torch.cuda.Event()
                event.record(stream)
        finally:
            for tensor in tensors:
                # Its memory is not given to others before the part is done.
                tensor.record_stream(stream)
        return event

    def synchronize(self) -> None:
        """Waits on the host for all that was launched."""
        for stream in self._streams:
            stream.synchronize()

    def wait(self, event: Event, stream: Any = None) -> None:  # noqa: ANN401
        """Lets a stream, by default the current one, wait for a part."""
        if event is not None:
            (stream or torch.cuda.current_stream(self.device)).wait_event(event)
