# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Restores artefacts into the pages of a device, and makes artefacts of these pages.

The kernels of kvcompress.gpu do it where they run, and the service does what they do not.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch  # type: ignore[import-not-found,unused-ignore]

from kvcompress.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from kvcompress.integrations._artefact_folder import ArtefactFolder, Found
from kvcompress.integrations._device_pages import DevicePages
from kvcompress.integrations._service import Service
from kvcompress.options import CompressArguments
from kvcompress.payload import PayloadError

if TYPE_CHECKING:
    from kvcompress.gpu import Decoder, Encoder

_LOG = logging.getLogger(__name__)


class DeviceCoder:
    """Decodes into pages, and encodes pages. Thread safe.

    Attributes:
        decoder: On the device; None where the service decodes everything.
        encoder: The same, for the codec of the options.
    """

    def __init__(
        self,
        pages: DevicePages,
        service: Service,
        options: CompressArguments,
        profile: Path | None = None,
        scratch: int = 1 << 28,
    ) -> None:
        """Sends the profile to the device, if kernels run there.

        Args:
            pages: Of the device.
            service: Does what the device does not.
            options: How artefacts are made.
            profile: A file, for what needs one on the device.
            scratch: Bytes of the kernels' buffers, about.

        Raises:
            OSError: The profile cannot be read.
        """
        self._pages, self._service = pages, service
        self._options: CompressArguments = {**options, "layout": pages.layout.notation}
        self._encoding, self._noting = threading.Lock(), threading.Lock()
        self._noted: set[tuple[str, str, str]] = set()
        self.decoder: Decoder | None = None
        self.encoder: Encoder | None = None
        if not pages.views:
            self._note("restored and saved", f"no slots for pages with axes {pages.layout.axes}")
            return
        try:
            from kvcompress import gpu

            self.decoder = gpu.Decoder(profile, pages.device, scratch=scratch)
        except (ImportError, InvalidArgumentError) as error:
            self._note("restored and saved", error)
            return
        try:
            codec = str(options.get("codec"))
            encoder = gpu.Encoder(codec, pages.device, profile=profile, scratch=scratch)
        except InvalidArgumentError as error:
            self._note("saved", error)
            return
        if len(pages.views) == 1:
            self.encoder = encoder
        else:
            self._note("saved", "keys and values have different slots")

    def restore(
        self,
        folder: ArtefactFolder,
        found: Found,
        tokens: tuple[int, int],
        pages: Sequence[int],
        timeout: float | None,
    ) -> None:
        """Writes a range of an artefact's tokens into pages; NOWHERE skips those of a page.

        Raises:
            KVCompressError: It cannot be restored.
            ValueError: It is damaged. What the pages hold is then not defined.
        """
        if self.decoder is not None:
            labels = folder.labels_of(found)
            try:
                for view in self._pages.views:
                    self.decoder.decode(
                        found.data,
                        view.tensors,
                        tensors=list(view.tensors),
                        tokens=tokens,
                        slots=view.slots(pages),
                        expected_labels=labels,
                    )
            except (UnimplementedError, FailedPreconditionError, torch.OutOfMemoryError) as error:
                self._note("restored", error)
            except PayloadError as error:
                if error.code == "DATA_LOSS":
                    raise
                self._note("restored", error)  # a later version's, perhaps
            else:
                return
        tensors = folder.restore(self._service.exchange(), found, tokens, timeout)
        self._pages.write(tensors, pages)

    def take(
        self,
        folder: ArtefactFolder,
        blocks: Sequence[str],
        pages: Sequence[int],
        timeout: float | None,
        first_token: int | None,
    ) -> Callable[[], int]:
        """Reads pages, which may then change.

        Args:
            folder: Where the artefact goes.
            blocks: The hashes of the run of blocks that it is of.
            pages: With their tokens.
            timeout: Seconds that the service may take; None for what the size takes.
            first_token: The position of their first token in the text, where that is known.

        Returns:
            A function that saves what was read, and returns the bytes of the artefact.

        Raises:
            KVCompressError: It cannot be encoded.
        """
        if self.encoder is not None:
            labels, metadata = folder.texts(blocks, first_token)
            [view] = self._pages.views
            try:
                with self._encoding:
                    encoded = self.encoder.encode(
                        view.tensors,
                        labels=labels,
                        metadata=metadata,
                        slots=view.slots(pages),
                        layout=self._pages.layout.notation,
                    )
            except (UnimplementedError, InvalidArgumentError, torch.OutOfMemoryError) as error:
                self._note("saved", error)
            else:
                return partial(folder.add, memoryview(encoded.data.numpy()), blocks)
        tensors = self._pages.read(pages)

        def save() -> int:
            client = self._service.client()
            return folder.save(client, blocks, tensors, self._options, timeout, first_token)

        return save

    def _note(self, what: str, reason: object) -> None:
        """Logs, once for each kind of reason, what the service does instead of the device."""
        kind = (what, type(reason).__name__, str(getattr(reason, "reason", "")))
        with self._noting:
            new = kind not in self._noted
            self._noted.add(kind)
        if new:
            text = str(getattr(reason, "message", reason))
            # Behind a semicolon is what another caller of the kernels could do.
            _LOG.warning("artefacts are %s by the service: %s", what, text.partition(";")[0])
