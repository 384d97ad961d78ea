# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m kvcompress store`: shows a folder of artefacts, verifies it, and makes room in it.

On a terminal it prints tables, into a pipe or a file JSON, one object a line. Exit status: 0, or 1
where `verify` found something wrong or `demote` failed on an artefact, or 2 where the folder or an
argument cannot be used.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from kvcompress._client import Client
from kvcompress._inputs import printable
from kvcompress.errors import KVCompressError
from kvcompress.store import _listing
from kvcompress.store._demotion import Demotion, use_idle_time
from kvcompress.store._exposition import exposition, write_whole
from kvcompress.store._manual import ManualAction
from kvcompress.store._quantities import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_seconds,
)
from kvcompress.store._removal import Removed
from kvcompress.store._store import ArtefactStore

_OK, _WRONG, _FAILED = 0, 1, 2


class _Output:
    """Prints tables or JSON."""

    def __init__(self, now: float, *, json: bool) -> None:
        """Takes the time from which ages count."""
        self.now, self.json = now, json

    def object(self, value: dict[str, Any], lines: Iterable[str]) -> None:
        """Prints an object, or lines that say the same."""
        if self.json:
            print(_listing.as_json(value))
        else:
            for line in lines:
                print(printable(line))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
        """Yields the lines of a table; the columns after the first are set to the right."""
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        for row in (head, *rows):
            others = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
            yield "  ".join((row[0].ljust(widths[0]), *others)).rstrip()

    def age(self, moment: float | None) -> str:
        """Writes how long ago something was."""
        return "-" if moment is None else format_seconds(self.now - moment)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    json = getattr(given, "json", not sys.stdout.isatty())
    try:
        with ArtefactStore.visit(given.folder) as store:
            run: Callable[[ArtefactStore, argparse.Namespace, _Output], int] = given.run
            status = run(store, given, _Output(store.now(), json=json))
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # Whoever reads has seen enough; Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _OK
    except KeyboardInterrupt:
        return _OK
    except (KVCompressError, OSError, ValueError) as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
        return _FAILED


def _stats(store: ArtefactStore, given: argparse.Namespace, output: _Output) -> int:
    """Prints totals and collections, or what Prometheus reads."""
    if given.prometheus is not None:
        text = exposition(store.path, store.account())
        if given.prometheus == "-":
            print(text, end="")
        else:
            write_whole(given.prometheus, text)
        return _OK
    found = _listing.totals(store, output.now)
    output.object(found, _lines_of(found, output))
    return _OK


def _lines_of(found: dict[str, Any], output: _Output) -> Iterable[str]:
    """Yields totals and collections as text."""
    capacity = found["capacity_bytes"]
    bound = "no store has been opened there" if capacity is None else format_bytes(capacity)
    part = f" ({100 * found['bytes'] / capacity:.0f} %)" if capacity else ""
    yield f"folder      {found['folder']}"
    yield f"held        {format_bytes(found['bytes'])}{part} in {found['artefacts']} artefacts"
    yield f"capacity    {bound}"
    evicted = ", ".join(f"{count} {reason}" for reason, count in found["evictions"].items())
    yield f"evicted     {evicted or 'nothing'} ({format_bytes(found['evicted_bytes'])})"
    yield f"in vain     {found['evicted_unread']} for the capacity, before anybody had read them"
    yield f"unfinished  {found['unfinished']} files"
    yield f"swept       {output.age(found['swept'])} ago" if found["swept"] else "swept       never"
    if found["collections"]:
        yield ""
        yield from output.table(
            ("collection", "artefacts", "held", "never read", "last use", "first"),
            [
                (
                    each["name"],
                    str(each["artefacts"]),
                    format_bytes(each["bytes"]),
                    str(each["never_read"]),
                    output.age(each["last_used"]),
                    output.age(each["first_used"]),
                )
                for each in found["collections"]
            ],
        )


def _ls(store: ArtefactStore, _: argparse.Namespace, output: _Output) -> int:
    """Prints all artefacts."""
    if output.json:
        for row in _listing.rows(store):
            print(_listing.as_json(row))
        return _OK
    rows = [
        (
            printable(row["path"]),
            format_bytes(row["bytes"]),
            output.age(row["written"]),
            "never" if row["never_read"] else output.age(row["used"]),
        )
        for row in _listing.rows(store)
    ]
    for line in output.table(("artefact", "held", "written", "read"), rows):
        print(line)
    return _OK


def _verify(store: ArtefactStore, given: argparse.Namespace, output: _Output) -> int:
    """Verifies all artefacts; removes those that are damaged, if that is asked for."""
    count = wrong = removed = 0
    for entry in store.entries():
        count += 1
        faults = _listing.faults(entry)
        if not faults:
            continue
        wrong += 1
        path = os.path.relpath(entry.path, store.path)
        output.object({"path": path, "faults": faults}, (f"{path}: {each}" for each in faults))
        if given.remove:
            store.discard(entry.path)
            removed += not os.path.lexists(entry.path)
    result = {"artefacts": count, "wrong": wrong, "removed": removed}
    output.object(result, [f"{count} artefacts, {wrong} of them with a fault, {removed} removed"])
    return _WRONG if wrong else _OK


def _sweep(store: ArtefactStore, _: argparse.Namespace, output: _Output) -> int:
    """Sweeps."""
    swept = store.sweep()
    output.object(
        {
            "unfinished": swept.partials,
            "artefacts": len(swept.removed),
            "bytes": sum(each.entry.bytes for each in swept.removed),
            "pointers": swept.pointers,
            "pointers_made": swept.adopted,
        },
        [
            f"removed {swept.partials} unfinished files, {len(swept.removed)} artefacts and "
            f"{swept.pointers} pointers that led nowhere; made {swept.adopted} pointers"
        ],
    )
    return _OK


def _evict(store: ArtefactStore, given: argparse.Namespace, output: _Output) -> int:
    """Evicts down to a size."""
    return _removed(store.evict_to(given.to), output)


def _prune(store: ArtefactStore, given: argparse.Namespace, output: _Output) -> int:
    """Removes what was not used for a time."""
    return _removed(store.prune(given.older_than), output)


def _demote(store: ArtefactStore, given: argparse.Namespace, output: _Output) -> int:
    """Demotes once, or again and again, in time that nobody else wants."""
    demotion = Demotion(given.codec, given.older_than, given.profile)
    use_idle_time(given.processors)
    with Client(profile_directory=given.profile_directory) as client:
        demoter = store.demoter(client, demotion)
        while True:
            try:
                done = demoter.run()
                for error in done.errors:
                    print(f"Error: {printable(error)}", file=sys.stderr)
                line = (
                    f"{done.artefacts} artefacts are smaller, {format_bytes(done.bytes)} in place "
                    f"of {format_bytes(done.before_bytes)}; {done.kept} kept, {done.failed} failed"
                )
                output.object({**asdict(done), "errors": list(done.errors)}, [line])
                sys.stdout.flush()
                if given.every is None:
                    return _WRONG if done.failed else _OK
            except (KVCompressError, OSError) as error:
                if given.every is None or isinstance(error, BrokenPipeError):
                    raise
                print(f"Error: {printable(str(error))}", file=sys.stderr)
            time.sleep(given.every)


def _removed(removed: list[Removed], output: _Output) -> int:
    """Prints how much was removed."""
    size = sum(each.entry.bytes for each in removed)
    output.object(
        {"artefacts": len(removed), "bytes": size},
        [f"removed {len(removed)} artefacts, {format_bytes(size)}"],
    )
    return _OK


def _parser() -> argparse.ArgumentParser:
    """Describes the arguments."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--json",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,  # or what follows the command would undo what comes before it
        help="print JSON, or tables (default: tables on a terminal)",
    )
    parser = argparse.ArgumentParser(
        prog="python -m kvcompress store",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--man", action=ManualAction)
    parser.add_argument("folder", help="the folder of a store, such as an engine's")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, parents=[common])
        command.set_defaults(run=run)
        return command

    stats = add("stats", _stats, "show what the folder holds, by collection")
    stats.add_argument(
        "--prometheus",
        metavar="FILE",
        help="write metrics, without listing the folder, for node_exporter's textfile collector; "
        "- prints them",
    )
    add("ls", _ls, "list artefacts, those first that will be evicted first")
    verify = add("verify", _verify, "check every byte of every artefact, without decoding it")
    verify.add_argument("--remove", action="store_true", help="remove those that have a fault")
    add("sweep", _sweep, "remove what crashes have left, and make pointers that are missing")
    evict = add("evict", _evict, "remove artefacts, those not used for longest first")
    evict.add_argument("--to", required=True, type=_bytes, metavar="BYTES", help="such as 100G")
    prune = add("prune", _prune, "remove artefacts that were not used for a time")
    prune.add_argument(
        "--older-than", required=True, type=_seconds, metavar="TIME", help="such as 7d"
    )
    _add_demote(add("demote", _demote, "encode again, smaller, what was not used for a time"))
    return parser


def _add_demote(demote: argparse.ArgumentParser) -> None:
    """Describes the arguments of demote."""
    demote.add_argument(
        "--codec", required=True, metavar="CODEC", help="ecsq, klt or a preset, such as klt:max"
    )
    demote.add_argument(
        "--older-than", required=True, type=_seconds, metavar="TIME", help="such as 1d"
    )
    demote.add_argument("--profile", metavar="NAME", help="name, digest or label of a profile")
    demote.add_argument("--profile-directory", metavar="DIR", help="where the profile is")
    demote.add_argument(
        "--processors", type=int, default=1, metavar="N", help="use so many at most (default: 1)"
    )
    demote.add_argument(
        "--every", type=_seconds, metavar="TIME", help="go on, with pauses such as 10m"
    )


def _bytes(text: str) -> int:
    """Reads a size, for argparse."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _seconds(text: str) -> float:
    """Reads a time, for argparse."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
