# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Output files: never an input, never a file that is there unless asked for, whole or not there."""

import errno
import fcntl
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from kvcompress._inputs import printable
from kvcompress.errors import AlreadyExistsError, InvalidArgumentError

_PARTIAL = re.compile(r"\.(\d+)-[0-9a-f]{16}\.kvcompress-partial")
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def partial_path(target: Path) -> Path:
    """Returns a new name next to a target, with the number of this process."""
    return target.with_name(f".{os.getpid()}-{secrets.token_hex(8)}.kvcompress-partial")


def check_output(
    output: str | os.PathLike[str], *others: str | os.PathLike[str], overwrite: bool
) -> None:
    """Refuses an output path before anything is sent or written.

    Args:
        output: Where a file is to appear.
        others: Inputs and other outputs of the call.
        overwrite: Whether a file that is there may be replaced.

    Raises:
        InvalidArgumentError: The output is one file with another of the call, under whatever
            names, reason `SAME_FILE`.
        AlreadyExistsError: It is there, reason `FILE_EXISTS`.
        ValueError: It is there and not a regular file.
    """
    name = printable(os.fspath(output))
    for other in others:
        if _is_one_file(output, other):
            raise InvalidArgumentError(
                f"the output {name} and {printable(os.fspath(other))} are one file, which the "
                "output would replace: name another output",
                reason="SAME_FILE",
            )
    try:
        found = Path(output).stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{name} is not a regular file")
    if not overwrite:
        raise _exists(output)


def permissions_of(source: object) -> int | None:
    """Returns who may read and write what is made from a file: the same as the file itself.

    None where the source is no path of a regular file.
    """
    if not isinstance(source, str | os.PathLike):
        return None
    with suppress(OSError):
        found = Path(source).stat()
        if stat.S_ISREG(found.st_mode):
            return found.st_mode & 0o666
    return None


def publish(partial: Path, target: Path, *, overwrite: bool) -> None:
    """Renames a finished file to its target, in the same directory.

    Raises:
        AlreadyExistsError: The target is there and may not be replaced.
        OSError: The file cannot be renamed; it keeps the name `partial`.
    """
    if overwrite:
        partial.replace(target)
    else:
        _move_to_free_name(partial, target)
    _sync(target.parent)


class UnfinishedFile:
    """A file that gets the name of its target when it is complete. For one thread.

    Until then it has none where the file system allows (O_TMPFILE), so that a process that is
    killed leaves nothing behind. Elsewhere it has a name next to the target. What a process that
    is gone has left under such a name is removed by the next one that makes one there: a lock
    shows that no process has the file open.

    Attributes:
        descriptor: For reading and writing.
    """

    def __init__(self, target: Path, permissions: int | None = None) -> None:
        """Makes the file in the directory of the target, which is no link.

        Args:
            target: The name that it will have.
            permissions: Who may read and write it; None for those of any new file.

        Raises:
            OSError: The directory cannot be written to.
        """
        self._target, self._owner = target, os.getpid()
        self._partial: Path | None = None
        descriptor = _open_unnamed(target.parent)
        if descriptor is None:
            remove_abandoned(target.parent)
            self._partial, descriptor = _open_named(target)
        self.descriptor = descriptor
        if permissions is not None:
            # Some file systems give all their files the same.
            with suppress(PermissionError, NotImplementedError):
                os.fchmod(descriptor, permissions)

    def commit(self, *, overwrite: bool) -> None:
        """Flushes to the disk, then links or renames the file to the target.

        Raises:
            AlreadyExistsError: The target is there and may not be replaced.
            OSError: The disk is full or broken; the target is as it was.
        """
        os.fsync(self.descriptor)
        if self._partial is None:
            with suppress(FileExistsError):
                _link(self.descriptor, self._target)
                _sync(self._target.parent)
                return
            if not overwrite:
                raise _exists(self._target)
            # A link never replaces a name, so a second name is moved over the first.
            remove_abandoned(self._target.parent)
            self._partial = partial_path(self._target)
            _link(self.descriptor, self._partial)
        publish(self._partial, self._target, overwrite=overwrite)

    def close(self) -> None:
        """Closes the file. A name that it had before it was complete ends with it.

        In a forked process the name is that of its parent, and stays.
        """
        os.close(self.descriptor)
        if self._partial is not None and self._owner == os.getpid():
            self._partial.unlink(missing_ok=True)


def _exists(output: str | os.PathLike[str]) -> AlreadyExistsError:
    """Makes the error for an output that is there."""
    return AlreadyExistsError(
        f"the output {printable(os.fspath(output))} exists already: overwrite=True replaces it",
        reason="FILE_EXISTS",
    )


def _is_one_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Returns whether two paths lead to one file, which need not be there."""
    try:
        return os.path.samestat(Path(first).stat(), Path(second).stat())
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)


def _open_unnamed(directory: Path) -> int | None:
    """Makes a file without a name; None where there are no such files, or no way to name one."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError:
        return None
    if not Path(f"/proc/self/fd/{descriptor}").exists():
        os.close(descriptor)
        return None
    _lock(descriptor)
    return descriptor


def _open_named(target: Path) -> tuple[Path, int]:
    """Makes a file with a name of its own next to a target."""
    while True:
        partial = partial_path(target)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        _lock(descriptor)
        # Before it had the lock, another process may have taken it for an abandoned one.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), partial.stat()):
                return partial, descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Takes the lock of a file; False where another process has it, or there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _link(descriptor: int, path: Path) -> None:
    """Links an open file to a name.

    Raises:
        FileExistsError: The name is taken.
    """
    directory = os.open(path.parent, os.O_PATH)
    try:
        # Only with the descriptor of a directory does `link` follow a link.
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=directory)
    finally:
        os.close(directory)


def _move_to_free_name(partial: Path, target: Path) -> None:
    """Renames a file to a name that is free, and does not replace one that is not."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _claim(target)
        try:
            partial.replace(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
    else:
        partial.unlink()


def _claim(target: Path) -> None:
    """Takes a free name with an empty file.

    Raises:
        AlreadyExistsError: It is not free.
    """
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        raise _exists(target) from None


def _sync(directory: Path) -> None:
    """Makes new names survive a crash, where the directory may be opened for that."""
    with suppress(PermissionError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_abandoned(directory: Path) -> None:
    """Removes files that processes which are gone have left unfinished in a directory."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            found = _PARTIAL.fullmatch(entry.name)
            if found is not None and not _is_running(int(found[1])):
                _remove_unlocked(Path(entry.path))


def _is_running(pid: int) -> bool:
    """Returns whether there is such a process."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _remove_unlocked(path: Path) -> None:
    """Removes a file that no process has locked, such as one in a container next to this one."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if _lock(descriptor) and os.path.samestat(os.fstat(descriptor), path.lstat()):
                path.unlink()
        finally:
            os.close(descriptor)
