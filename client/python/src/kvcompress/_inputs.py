# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Opening files that somebody else named, and showing their names."""

import os
import re
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FIFO_PATIENCE_S = 5
"""How long opening waits for the first process that writes to a FIFO."""


class NoWriterError(TimeoutError):
    """A FIFO that nothing writes to."""


# Control characters, those that change the direction of text or are not seen, and what is not
# UTF-8, which Python has as surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """Escapes what would act on a terminal. For text of others that people read."""
    return _UNSAFE.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    """Returns the escape of one character."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # a byte of a name that is not UTF-8
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def open_input(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file for reading; of a FIFO, waits a little for a process that writes to it.

    A process substitution has one, and so has a pipe.

    Raises:
        OSError: The file cannot be opened; a NoWriterError for a FIFO.
    """
    path = Path(path)
    if not stat.S_ISFIFO(path.stat().st_mode):
        return path.open("rb")
    opened: list[BinaryIO] = []
    failed: list[OSError] = []

    def attempt() -> None:
        try:
            opened.append(path.open("rb"))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(FIFO_PATIENCE_S)
    if not thread.is_alive():
        if failed:
            raise failed[0]
        return opened[0]
    with suppress(OSError):
        # Whoever opens both ends is a writer, and ends the wait.
        own = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        thread.join(FIFO_PATIENCE_S)
        os.close(own)
    for file in opened:
        file.close()
    raise NoWriterError(
        f"open {path}: it is a FIFO, and nothing has opened it for writing within "
        f"{FIFO_PATIENCE_S}s"
    )
