# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The result of a decoder, while kernels may still be writing it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.gpu._device import on_stream
from kvcompress.gpu._lanes import Event, Lanes
from kvcompress.gpu._singles import Decoding


class Launched(NamedTuple):
    """A part of an artefact whose kernels were launched.

    Attributes:
        names: Of the tensors that it writes to.
        decoding: What knows how it ended.
        event: Behind its kernels.
    """

    names: Sequence[str]
    decoding: Decoding
    event: Event


class Decoded:
    """The result of `Decoder.decode`.

    Attributes:
        tensors: By name, in the order of the file; those of `into` where it has them.
        fallbacks: Tensors that the client restored on the host and that were copied to the
            device, with the reason of each.
        metadata: Of the source, in its order.
    """

    def __init__(
        self,
        tensors: dict[str, torch.Tensor],
        fallbacks: dict[str, str],
        metadata: Mapping[str, str],
        launched: Sequence[Launched],
        lanes: Lanes,
    ) -> None:
        """Keeps what is needed to wait."""
        self.tensors, self.fallbacks, self.metadata = tensors, fallbacks, dict(metadata)
        self._launched, self._lanes = list(launched), lanes

    def wait(
        self, names: Iterable[str] | None = None, stream: "torch.cuda.Stream | None" = None
    ) -> None:
        """Lets a stream wait until tensors are written; the host does not wait.

        Args:
            names: Of the tensors, such as those of a layer. Default: all.
            stream: Which one. Default: the current one.
        """
        wanted = None if names is None else set(names)
        for part in self._launched:
            if wanted is None or wanted & set(part.names):
                self._lanes.wait(part.event, stream)

    def check(self) -> list[str]:
        """Waits on the host, and learns whether a payload is broken.

        Returns:
            Names of tensors that had levels beyond what the fast kernels hold, and were written
            again: what read them before has to read them again.

        Raises:
            PayloadError: A payload breaks a rule. What the tensors hold is not defined.
        """
        again: list[str] = []
        with on_stream(self._lanes.device, None):
            # Of all first: who is told that one is broken may use the tensors for something else.
            for part in self._launched:
                self._lanes.wait(part.event)
                if part.event is not None:
                    part.event.synchronize()
            for part in self._launched:
                if part.decoding.finish():
                    again += part.names
        self._launched.clear()
        return again
