# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What is closed when its `with` block is left."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Has a `close`, which the end of a `with` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Releases what it holds."""

    def __enter__(self) -> Self:
        """Gives itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes, whatever ended the block."""
        self.close()
