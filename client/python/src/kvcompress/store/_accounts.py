# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Keeps the account of a folder right: lists the folder where it has to, and counts off."""

from collections.abc import Callable, Iterable, Sequence

from kvcompress.store._layout import Entry, entries
from kvcompress.store._ledger import Account, Ledger
from kvcompress.store._removal import Removed

_RECOUNT_SECONDS = 3600.0  # for what others have put there or taken


class Accounts:
    """The ledger of a folder, and what to do without it. To write, hold the folder's lock.

    Attributes:
        root: The folder.
    """

    def __init__(self, root: str, path: str, clock: Callable[[], float]) -> None:
        """Takes the folder, the ledger's file, and the file system's clock."""
        self.root, self._ledger, self._clock = root, Ledger(path), clock

    def known(self) -> Account | None:
        """Returns the account without listing the folder; None where there is none."""
        return self._ledger.read()

    def read(self) -> Account:
        """Returns the account, which may be some time old."""
        return self._ledger.read() or self.counted(entries(self.root), Account())

    def fresh(self) -> Account:
        """Returns an account that was made by listing the folder within the hour."""
        account = self._ledger.read()
        if account is not None and abs(self._clock() - account.counted) < _RECOUNT_SECONDS:
            return account
        return self.counted(entries(self.root), account or Account())

    def counted(self, found: Iterable[Entry], account: Account) -> Account:
        """Sets an account to what is there."""
        account.bytes = account.artefacts = 0
        for entry in found:
            account.bytes += entry.bytes
            account.artefacts += 1
        account.counted = self._clock()
        return account

    def recount(self) -> None:
        """Lists the folder, and writes what is there."""
        account = self._ledger.read() or Account(swept=self._clock())
        self.write(self.counted(entries(self.root), account))

    def add(self, account: Account, size: int, artefacts: int = 1) -> None:
        """Counts artefacts that appear, or with negative numbers some that are gone."""
        account.bytes = max(0, account.bytes + size)
        account.artefacts = max(0, account.artefacts + artefacts)
        self.write(account)

    def count_off(self, account: Account, removed: Sequence[Removed]) -> None:
        """Takes what was removed off an account."""
        if not removed:
            return
        for each in removed:
            account.bytes = max(0, account.bytes - each.entry.bytes)
            account.artefacts = max(0, account.artefacts - 1)
            account.evictions[each.reason] = account.evictions.get(each.reason, 0) + 1
            account.evicted_bytes += each.entry.bytes
            account.evicted_unread += each.in_vain
        self.write(account)

    def write(self, account: Account) -> None:
        """Writes the ledger; where that fails, the folder is listed the next time."""
        try:
            self._ledger.write(account)
        except OSError:
            self._ledger.drop()
