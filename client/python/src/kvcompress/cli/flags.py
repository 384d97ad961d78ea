# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The flags: in the syntax of Go, as kv-compress takes them."""

import argparse
import enum
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

from kvcompress.cli.gate import has_gate, parse_finite, parse_thresholds
from kvcompress.options import EFFORTS, CompressArguments
from kvcompress.reports import Thresholds
from kvcompress.version import __version__

Value = TypeVar("Value")

PROGRAM = "python -m kvcompress"
_EPILOG = """\
Flags take one dash or two. The result is printed to standard output as JSON,
everything else to standard error; with -output - the JSON goes to standard
error too.

Exit status: 0 success, 1 error, 2 when a bound of -min-snr-db,
-thresholds, -key-thresholds or -value-thresholds does not hold."""


class UsageError(Exception):
    """A mistake on the command line, with the sentence to print."""


class Mode(enum.Enum):
    """What the command line asks for; the value is the flag that does, if any."""

    COMPRESS = ""
    MEASURE = "metrics-only"
    DECOMPRESS = "decompress"
    INFO = "info"
    VERIFY = "verify"


@dataclass
class Flags:
    """What a command line says.

    Attributes:
        mode: What to do.
        input: Path; `-` is standard input.
        output: Path; `-` is standard output. Empty where nothing is written.
        server: Address; None for a server of the command's own.
        shared_directory: Where this process sees the directory that the service shares; empty:
            where the service sees it.
        tls_ca: Path of a PEM file, the authorities that sign servers' certificates; empty for
            plain text.
        tls_cert: Path of a PEM file, the client's own certificate; empty for none.
        tls_key: Path of a PEM file, its key.
        options: For compressing and measuring.
        progress: `auto`, `always` or `never`.
        tensors: Shell patterns.
        tokens: Half-open range.
        labels: To bind, or to expect.
        verbose: Whether to report every tensor.
    """

    mode: Mode = Mode.COMPRESS
    input: str = ""
    output: str = ""
    server: str | None = None
    shared_directory: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    options: CompressArguments = field(default_factory=CompressArguments)
    progress: str = "auto"
    tensors: list[str] = field(default_factory=list)
    tokens: tuple[int, int] | None = None
    labels: dict[str, str] = field(default_factory=dict)
    verbose: bool = False


def parse(arguments: Sequence[str]) -> Flags:
    """Reads the arguments and the environment.

    Raises:
        SystemExit: Help or the version was asked for, and printed.
        UsageError: There is a mistake.
    """
    parser = _parser()
    raw = parser.parse_args(_normal(arguments, parser))
    flags = Flags(
        server=raw.server or os.environ.get("KVCOMPRESS_SERVER") or None,
        shared_directory=(
            raw.shared_directory or os.environ.get("KVCOMPRESS_SHARED_DIRECTORY") or ""
        ),
        options={"codec": raw.codec, "preset": raw.preset, "last_stage": raw.last_stage},
        tensors=raw.tensors,
        verbose=raw.verbose,
        progress=raw.progress,
    )
    _set_files(raw, flags)
    _check_mode(raw, flags.mode)
    _set_numbers(raw, flags.options)
    _set_bounds(raw, flags.options)
    _set_tls(raw, flags)
    if flags.progress not in {"auto", "always", "never"}:
        _refuse(flags.progress, "progress", "must be auto, always or never")
    _set_selection(raw, flags)
    flags.options["labels"] = flags.labels
    flags.options["report_tensors"] = flags.verbose or has_gate(flags.options)
    return flags


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would end the program."""

    def error(self, message: str) -> NoReturn:
        """Raises the error."""
        raise UsageError(message)


def _boolean(text: str) -> bool:
    """Reads a boolean as Go does."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise argparse.ArgumentTypeError(f"invalid boolean value {text!r}")


def _parser() -> argparse.ArgumentParser:
    """Describes the flags. Boolean ones have `const`, the value that they mean bare."""
    parser = _Parser(
        prog=PROGRAM,
        description="Compress KV caches with measured quality.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
        usage=f"{PROGRAM} -input FILE -output FILE [FLAGS]",
    )

    def value(name: str, kind: str, text: str, default: str | None = "") -> None:
        parser.add_argument(f"--{name}", metavar=kind, help=text, default=default)

    def flag(name: str, text: str) -> None:
        parser.add_argument(
            f"--{name}",
            nargs="?",
            const=True,
            default=False,
            type=_boolean,
            help=text,
            metavar="=BOOL",
        )

    def many(name: str, kind: str, text: str) -> None:
        parser.add_argument(f"--{name}", metavar=kind, help=text, default=[], action="append")

    value("input", "FILE", "Input file; - is standard input")
    value("output", "FILE", "Output file; - is standard output")
    value("group-size", "N", "Elements that share a scale: 32, 64 or 128 (default 64)", None)
    value(
        "sparsity",
        "RATIO",
        "Sparsification ratio, 0 to 1 (default 0: none); takes codec sparse",
        None,
    )
    flag("decompress", "Decompress")
    flag("metrics-only", "Measure, write nothing")
    flag("verbose", "Report every tensor, log to stderr")
    value("server", "ADDRESS", "HOST:PORT or unix:PATH of the service, else KVCOMPRESS_SERVER")
    value("shared-directory", "DIR", "Where this process sees the service's shared directory")
    value("tls-ca", "FILE", "Authorities, PEM, that sign servers' certificates; turns TLS on")
    value("tls-cert", "FILE", "Certificate of this client, PEM, for a server that asks for one")
    value("tls-key", "FILE", "Private key of that certificate, PEM")
    value("codec", "NAME", "Codec (default int4)")
    value("preset", "NAME", "Preset of the codec")
    value("last-stage", "NAME", "lz4 or zstd over what the codec writes, where that is smaller")
    value("effort", "LEVEL", "Time for making less of it: fast, balanced or best", None)
    value("rope-theta", "BASE", "Base of the rotary embedding of the keys; 0: none", None)
    value("min-snr-db", "DB", "Publish only if the SNR of every tensor is above this", None)
    bounds = "NAME=X,..."
    value("thresholds", bounds, "Publish only if every tensor holds these bounds", None)
    value("key-thresholds", bounds, "Bounds for keys, where they differ", None)
    value("value-thresholds", bounds, "Bounds for values, where they differ", None)
    value("progress", "WHEN", "Progress bar: auto, always or never (default auto)", "auto")
    value("info", "FILE", "List an artefact without decoding it", None)
    value("verify", "FILE", "Decode an artefact, check everything, write nothing", None)
    many("tensors", "GLOB", "Decompress only matching tensors, at least one (repeatable)")
    value("tokens", "A:B", "Decompress only tokens A to B-1", None)
    many("label", "KEY=VALUE", "Bind a label, or expect it when decoding (repeatable)")
    parser.add_argument("--help", action="help", help="Print this text")
    version = f"%(prog)s {__version__} (API v1, artefact format 1)"
    parser.add_argument("--version", action="version", version=version, help="Print the versions")
    return parser


def _normal(arguments: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Turns Go's syntax into `--flag=value`, and names what does not follow it."""
    actions = {action.option_strings[0][2:]: action for action in parser._actions}
    result, rest = [], list(arguments)
    while rest:
        text = rest.pop(0)
        if len(text) < 2 or text[0] != "-" or text == "--":
            raise UsageError(f"unexpected argument: {text}")
        name, equals, given = text.removeprefix("-").removeprefix("-").partition("=")
        name = "help" if name == "h" else name
        if name not in actions:
            raise UsageError(f"flag provided but not defined: -{name}")
        action = actions[name]
        if action.nargs == 0 or (action.nargs == "?" and not equals):
            result.append(f"--{name}")
            continue
        if not equals:
            if name == "progress" and (not rest or rest[0] not in {"auto", "always", "never"}):
                given = "always"
            elif not rest:
                raise UsageError(f"flag needs an argument: -{name}")
            else:
                given = rest.pop(0)
        result.append(f"--{name}={given}")
    return result


def _refuse(value: str, flag: str, why: str = "parse error") -> NoReturn:
    """Refuses a value, in Go's words."""
    raise UsageError(f'invalid value "{value}" for flag -{flag}: {why}')


def _set_files(raw: argparse.Namespace, flags: Flags) -> None:
    """Sets the mode, the input and the output."""
    values = {mode: getattr(raw, mode.value.replace("-", "_")) for mode in Mode if mode.value}
    chosen = [mode for mode, value in values.items() if value is not False and value is not None]
    if len(chosen) > 1:
        raise UsageError("-decompress, -metrics-only, -info and -verify exclude each other")
    flags.mode = chosen[0] if chosen else Mode.COMPRESS
    flags.input = raw.input
    if flags.mode in {Mode.INFO, Mode.VERIFY}:
        if raw.input:
            raise UsageError("-info and -verify name their file themselves, without -input")
        flags.input = values[flags.mode]
    if not flags.input:
        raise UsageError("-input is required")
    if flags.mode in {Mode.COMPRESS, Mode.DECOMPRESS}:
        flags.output = raw.output
        if not flags.output:
            raise UsageError("-output is required")


def _check_mode(raw: argparse.Namespace, mode: Mode) -> None:
    """Refuses flags that would do nothing."""
    given = {"tensors": raw.tensors, "tokens": raw.tokens is not None}
    if mode is not Mode.DECOMPRESS and any(given.values()):
        flag = next(flag for flag, value in given.items() if value)
        raise UsageError(f"-{flag} needs -decompress")
    given = {"codec": raw.codec, "preset": raw.preset, "last-stage": raw.last_stage}
    for name in (
        "min_snr_db",
        "thresholds",
        "key_thresholds",
        "value_thresholds",
        "rope_theta",
        "effort",
    ):
        given[name.replace("_", "-")] = getattr(raw, name) is not None
    if mode not in {Mode.COMPRESS, Mode.MEASURE} and any(given.values()):
        flag = next(flag for flag, value in given.items() if value)
        raise UsageError(f"-{flag} needs compression or -metrics-only")
    if mode is Mode.INFO and raw.label:
        raise UsageError("-label needs compression or decoding")


def _set_numbers(raw: argparse.Namespace, options: CompressArguments) -> None:
    """Sets what is a number, and the codec that -sparsity stands for."""
    if raw.group_size is not None:
        if not re.fullmatch("[+-]?[0-9]{1,9}", raw.group_size):
            _refuse(raw.group_size, "group-size")
        options["group_size"] = int(raw.group_size)
        if options["group_size"] not in {32, 64, 128}:
            _refuse(raw.group_size, "group-size", "must be 32, 64 or 128")
    if raw.sparsity is not None:
        try:
            sparsity = float(raw.sparsity)
        except ValueError:
            _refuse(raw.sparsity, "sparsity")
        if not 0 <= sparsity <= 1:
            _refuse(raw.sparsity, "sparsity", "must be from 0 to 1")
        if sparsity and raw.codec not in {"", "sparse"}:
            raise UsageError("-sparsity needs -codec sparse, or no -codec")
        if sparsity:
            options.update({"codec": "sparse", "sparsity": sparsity})
    if raw.effort is not None:
        if raw.effort not in EFFORTS:
            _refuse(raw.effort, "effort", "must be fast, balanced or best")
        options["effort"] = raw.effort
    if raw.rope_theta is not None:
        options["rope_theta"] = _checked(_finite, raw.rope_theta, "rope-theta")


def _set_bounds(raw: argparse.Namespace, options: CompressArguments) -> None:
    """Sets the bounds that tensors are held to."""
    if raw.thresholds is not None:
        options["thresholds"] = _checked(parse_thresholds, raw.thresholds, "thresholds")
    if raw.key_thresholds is not None:
        options["key_thresholds"] = _checked(parse_thresholds, raw.key_thresholds, "key-thresholds")
    if raw.value_thresholds is not None:
        options["value_thresholds"] = _checked(
            parse_thresholds, raw.value_thresholds, "value-thresholds"
        )
    if raw.min_snr_db is not None:
        bound = _checked(_finite, raw.min_snr_db, "min-snr-db")
        common = options.get("thresholds") or Thresholds()
        if common.min_snr_db is not None:
            words = "-min-snr-db and min_snr_db of -thresholds exclude each other"
            raise UsageError(words)
        options["thresholds"] = replace(common, min_snr_db=bound)


def _set_tls(raw: argparse.Namespace, flags: Flags) -> None:
    """Sets the files for TLS."""
    if bool(raw.tls_cert) != bool(raw.tls_key):
        raise UsageError("-tls-cert and -tls-key go together")
    if raw.tls_cert and not raw.tls_ca:
        raise UsageError("-tls-cert needs -tls-ca")
    if raw.tls_ca and flags.server is None:
        raise UsageError("-tls-ca needs -server")
    flags.tls_ca, flags.tls_cert, flags.tls_key = raw.tls_ca, raw.tls_cert, raw.tls_key


def _finite(text: str) -> float:
    """Reads a finite number."""
    return parse_finite(text, "must be a finite number")


def _checked(parse: Callable[[str], Value], text: str, flag: str) -> Value:
    """Reads a value, or refuses it in the words of what reads it."""
    try:
        return parse(text)
    except ValueError as error:
        _refuse(text, flag, str(error))


def _set_selection(raw: argparse.Namespace, flags: Flags) -> None:
    """Sets tokens and labels."""
    if raw.tokens is not None:
        ends = re.fullmatch("([0-9]{1,18}):([0-9]{1,18})", raw.tokens)
        if ends is None:
            _refuse(raw.tokens, "tokens", "must be FIRST:END")
        flags.tokens = (int(ends[1]), int(ends[2]))
    for label in raw.label:
        key, equals, value = label.partition("=")
        if not key or not equals:
            _refuse(label, "label", "must be KEY=VALUE")
        if key in flags.labels:
            _refuse(label, "label", "the key is given twice")
        flags.labels[key] = value
