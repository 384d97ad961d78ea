# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Log lines with time, level and name in engines whose own set-up leaves some of them out.

vLLM and LMCache give handlers to their own loggers alone: Python prints other warnings bare. SGLang
gives one to all loggers, which prints time and rank, and neither level nor name.
"""

import copy
import logging
import sys

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SGLANGS = "[%(asctime)s"  # its format begins so
_OURS = "kvcompress"


class _LastResort(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints to stderr what the root logger does not handle, as Python's own last resort does."""

    def __init__(self) -> None:
        """Takes the format."""
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line, unless the engine or its operator has set up logging for all names."""
        if not logging.getLogger().handlers:
            self.stream = sys.stderr
            super().emit(record)


class _Named(logging.Formatter):
    """Formats as another formatter does, this package's messages with level and name."""

    def __init__(self, formatter: logging.Formatter) -> None:
        """Takes the other one."""
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Returns a line."""
        if record.name.split(".", 1)[0] == _OURS:
            record = copy.copy(record)  # other handlers have it as well
            message = f"{record.levelname} {record.name}: {record.getMessage()}"
            record.msg, record.args = message, None
        return self._formatter.format(record)


def prepare_logs() -> None:
    """Prints this package's log lines whole; what is set up for its name stays as it is."""
    ours = logging.getLogger(_OURS)
    if not ours.handlers:
        ours.addHandler(_LastResort())


def prepare_sglangs_logs() -> None:
    """Does the same, and adds level and name to this package's lines where SGLang prints them.

    Another format than SGLang's own, or one that has level or name, stays as it is.
    """
    prepare_logs()
    for handler in logging.getLogger().handlers:
        found = handler.formatter
        text = str(getattr(found, "_fmt", ""))
        if found is None or isinstance(found, _Named) or not text.startswith(_SGLANGS):
            continue
        if "%(levelname)" not in text and "%(name)" not in text:
            handler.setFormatter(_Named(found))
