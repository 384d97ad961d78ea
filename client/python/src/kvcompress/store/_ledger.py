# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What is known of a folder without listing it: how much it holds, and what was evicted.

The ledger says when to list the folder; a listing is always right. A process that dies between an
artefact and the ledger's line leaves it too high, as artefacts are counted before they appear and
after they are gone: a bound that follows it holds.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields

from kvcompress._foreign_files import ForeignFileError, parse_json, read_foreign

_MOST_BYTES = 1 << 16


@dataclass
class Account:
    """The ledger's line.

    Attributes:
        bytes: Of all artefacts, in pages.
        artefacts: How many.
        capacity: Of the store that wrote the line.
        counted: When the folder was last listed, in seconds since the epoch.
        swept: When what crashes leave was last looked for.
        evictions: Artefacts by the reason for which they were evicted, since the folder was made.
        evicted_bytes: What they took.
        evicted_unread: How many of them went for the capacity before anybody had read them.
    """

    bytes: int = 0
    artefacts: int = 0
    capacity: int = 0
    counted: float = 0.0
    swept: float = 0.0
    evictions: dict[str, int] = field(default_factory=dict)
    evicted_bytes: int = 0
    evicted_unread: int = 0


class Ledger:
    """Keeps an account in a file. To write, the caller holds the folder's lock."""

    def __init__(self, path: str) -> None:
        """Takes the file."""
        self._path = path

    def read(self) -> Account | None:
        """Returns the account; None where there is none, or one that is no account."""
        try:
            found = parse_json(read_foreign(self._path, _MOST_BYTES))
            account = Account(**{each.name: found[each.name] for each in fields(Account)})
        except (OSError, ForeignFileError, ValueError, KeyError, TypeError):
            return None
        numbers = {**asdict(account), **account.evictions} if _is_counts(account) else {}
        numbers.pop("evictions", None)
        valid = numbers and all(
            isinstance(each, int | float) and not isinstance(each, bool) and each >= 0
            for each in numbers.values()
        )
        return account if valid else None

    def write(self, account: Account) -> None:
        """Replaces the account, whole.

        Raises:
            OSError: It cannot be written.
        """
        unfinished = f"{self._path}.new"
        descriptor = os.open(
            unfinished,
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o666,
        )
        try:
            os.write(descriptor, json.dumps(asdict(account)).encode())
        finally:
            os.close(descriptor)
        os.replace(unfinished, self._path)

    def drop(self) -> None:
        """Removes the account, so that the next one to need it lists the folder."""
        with suppress(OSError):
            os.unlink(self._path)


def _is_counts(account: Account) -> bool:
    """Returns whether evictions are a mapping from reasons."""
    return isinstance(account.evictions, dict)
