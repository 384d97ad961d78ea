# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m kvcompress.profiles`: trains profiles and shows what they are."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kvcompress._inputs import printable
from kvcompress._output_file import check_output
from kvcompress.profiles import format_report, read_profile
from kvcompress.profiles._report import report_paths

# Choices of how much of a basis is kept: time, the size of a profile, and what it can keep.
COMPONENTS = {"fast": 512, "balanced": 1024, "fine": 2048}
_MOST_COMPONENTS = 8192  # of the format


def _components(text: str) -> int:
    """Reads a number of components, or the name of one."""
    if text in COMPONENTS:
        return COMPONENTS[text]
    if text.isdecimal() and 0 < int(text) <= _MOST_COMPONENTS:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither 1 to {_MOST_COMPONENTS} nor one of {', '.join(COMPONENTS)}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kvcompress.profiles", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_flags(commands.add_parser("train", help="train a profile from a Hugging Face model"))
    report = commands.add_parser("report", help="show what a profile is")
    report.add_argument("profile", type=Path)
    return parser


def _add_flags(train: argparse.ArgumentParser) -> None:
    """Adds those of a training."""
    train.add_argument("--model", required=True, help="folder, GGUF file, or name on the hub")
    train.add_argument("--label", help="what the model is called (default: the last part of it)")
    train.add_argument(
        "--text",
        nargs="+",
        default=[],
        type=Path,
        help="files of UTF-8 text, one of each kind (default: what the model writes alone)",
    )
    train.add_argument("--output", required=True, type=Path, help="the profile")
    train.add_argument("--overwrite", action="store_true", help="replace files that are there")
    train.add_argument("--device", default="cpu", help="where the model runs (default: cpu)")
    train.add_argument(
        "--windows", type=int, default=18, help="windows of the files to train on (default 18)"
    )
    train.add_argument(
        "--own",
        type=int,
        default=30,
        help="windows to train on that the model writes itself (default 30)",
    )
    train.add_argument("--tokens", type=int, default=1024, help="tokens of each (default 1024)")
    train.add_argument(
        "--fed", type=int, default=160, help="tokens behind these that are predicted (default 160)"
    )
    train.add_argument(
        "--samples", type=int, default=2, help="gradients a window, 0: caches alone (default 2)"
    )
    train.add_argument(
        "--held-out",
        type=int,
        default=12,
        help="windows to place presets on, of the files, and as many of the model (default 12)",
    )
    train.add_argument(
        "--layers",
        type=int,
        default=10,
        help="about, of equal groups; 0: all in one (default 10)",
    )
    train.add_argument(
        "--components",
        type=_components,
        default=COMPONENTS["balanced"],
        help="the most of a group, or "
        + ", ".join(f"{name} for {count}" for name, count in COMPONENTS.items())
        + " (default balanced)",
    )
    train.add_argument("--seed", type=int, default=0, help="of the sampling (default 0)")
    train.add_argument("--work", type=Path, help="folder for temporary files")
    train.add_argument(
        "--report",
        action="store_true",
        help="write NAME.report.md and a chart beside the profile: what each layer loses, times, "
        "peak memory",
    )


def _read_texts(paths: Sequence[Path]) -> dict[str, str]:
    """Reads texts by the names of their kinds: those of the files, or whole paths where needed."""
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else list(map(str, paths))
    return {
        name: path.read_text(encoding="utf-8-sig") for name, path in zip(names, paths, strict=True)
    }


def _train(arguments: argparse.Namespace) -> str:
    outputs = [arguments.output, *(report_paths(arguments.output) if arguments.report else ())]
    for output in outputs:
        check_output(output, *arguments.text, arguments.model, overwrite=arguments.overwrite)
    try:
        from kvcompress.profiles import _native, _training, _training_report
        from kvcompress.profiles._model import LanguageModel
    except ImportError as error:
        raise ValueError(
            f"training needs torch, transformers and safetensors: {error}; install them, or train "
            "from caches alone with kv-compress -train-profile"
        ) from error
    _native.find()  # which is needed after an hour, when the caches are there
    options = _training.TrainingOptions(
        label=arguments.label or Path(arguments.model).name,
        windows=arguments.windows,
        own=arguments.own,
        tokens=arguments.tokens,
        fed=arguments.fed,
        samples=arguments.samples,
        held_out=arguments.held_out,
        layers=arguments.layers,
        components=arguments.components,
        seed=arguments.seed,
    )
    texts = _read_texts(arguments.text)
    model = LanguageModel.load(arguments.model, arguments.device)
    trainer = _training.Trainer(model, options, lambda line: print(line, file=sys.stderr))
    info = trainer.train(texts, arguments.output, arguments.work)
    if arguments.report:
        _training_report.write(info, trainer, arguments.output)
    seconds = ", ".join(f"{name} {time:.0f} s" for name, time in trainer.times.parts.items())
    return f"{format_report(info)}\nTook: {seconds}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "train":
            print(_train(parsed), end="")
        else:
            print(format_report(read_profile(parsed.profile)), end="")
    except (OSError, ValueError, RuntimeError) as error:
        print(f"Error: {printable(str(error))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
