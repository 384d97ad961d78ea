# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Lays out the pages of the documentation site: the repository's Markdown, and what is generated.

    site_pages.py FOLDER BIN_DIR

Every Markdown file keeps its path; its links to files that are no pages become links to the
repository, pictures are copied. Pages under reference/ are made of what the programs print with
-help, of the descriptors of the API, and of sections of server/OPERATIONS.md.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc  # type: ignore[import-untyped,unused-ignore]

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = "https://github.com/kvcompress/kvcompress"
ROOTS = (
    *("*.md", "client/python/*.md", "core/*.md", "deploy/*.md", "docs/**/*.md", "proto/*.md"),
    *("server/*.md", "tests/**/*.md", "validation/**/*.md"),
)
PICTURES = {".png", ".svg"}
# Sections of the operations guide that are pages of the reference too.
SECTIONS = {"Flags": "configuration", "Metrics": "metrics", "Alerts": "alerts", "Errors": "errors"}

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_OPTION = re.compile(r"^  (-\S.*?)(?:  +(\S.*))?$")


class PageError(Exception):
    """A document that cannot be a page; the message says which, and why."""


def documents() -> list[Path]:
    """The Markdown files that become pages, relative to the repository."""
    found = {path for root in ROOTS for path in REPOSITORY.glob(root)}
    return sorted(path.relative_to(REPOSITORY) for path in found)


def page(document: Path, text: str, pages: set[Path]) -> tuple[str, set[Path]]:
    """Returns the text of a page, and the pictures that it shows.

    Args:
        document: Where the text stands, relative to the repository.
        text: It.
        pages: All documents that are pages.

    Raises:
        PageError: A link leads nowhere.
    """
    pictures: set[Path] = set()

    def target(match: re.Match[str]) -> str:
        opening, path, anchor = match[1], match[2], match[3] or ""
        if not path or "://" in path:
            return match[0]
        found = Path(os.path.normpath(document.parent / path))
        if found in pages:
            return f"{opening}{path}{anchor})"
        if found / "README.md" in pages:
            return f"{opening}{path.rstrip('/')}/README.md{anchor})"
        if not (REPOSITORY / found).exists():
            raise PageError(f"{document}: a link to {path}, which is not there")
        if found.suffix in PICTURES:
            pictures.add(found)
            return match[0]
        kind = "tree" if (REPOSITORY / found).is_dir() else "blob"
        return f"{opening}{SOURCE}/{kind}/main/{found}{anchor})"

    parts = _FENCE.split(text)
    parts[::2] = [_plain_brackets(_LINK.sub(target, part)) for part in parts[::2]]
    return "".join(parts), pictures


def _plain_brackets(text: str) -> str:
    """Keeps a[i][j] outside code from being taken for a reference."""
    parts = re.split(r"(`[^`\n]*`)", text)
    parts[::2] = [part.replace("][", "]\\[") for part in parts[::2]]
    return "".join(parts)


def section(text: str, title: str) -> str:
    """Returns a section of the operations guide as a page of its own in another folder.

    Raises:
        PageError: There is no such section.
    """
    match = re.search(rf"(?ms)^## {title}\n(.*?)(?=^## |\Z)", text)
    if match is None:
        raise PageError(f"server/OPERATIONS.md has no section {title}")
    body = re.sub(r"(?m)^#(##+ )", r"\1", match[1])
    own = {anchor(heading) for heading in re.findall(r"(?m)^##+ (.+)$", body)}

    def target(link: re.Match[str]) -> str:
        if link[2] or (link[3] or "")[1:] in own:
            return link[0]
        return f"{link[1]}../server/OPERATIONS.md{link[3]})"

    return f"# {title}\n{_LINK.sub(target, body)}"


def anchor(heading: str) -> str:
    """Returns the anchor of a heading, as GitHub does."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def options_page(program: Path) -> str:
    """Returns what a program prints with --help, its options as tables."""
    command = [str(program), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    blocks = [block.strip("\n") for block in text.split("\n\n")]
    tables = [i for i, block in enumerate(blocks) if _options(block)]
    head, tail = blocks[: tables[0]], blocks[tables[-1] + 1 :]
    parts = [f"# {program.name}\n", f"```text\n{_joined(head)}\n```\n"]
    for i in tables:
        title = blocks[i].partition("\n")[0].rstrip(":")
        lines = [f"| `{name}` | {_cell(what)} |" for name, what in _options(blocks[i])]
        parts += [f"## {title}\n", "| option | what it does |", "| --- | --- |", *lines, ""]
    if tail:
        parts += ["## More\n", f"```text\n{_joined(tail)}\n```\n"]
    return "\n".join(parts)


def _options(block: str) -> list[list[str]]:
    """Names and texts of a block of options under a title; none where it is another block."""
    title, _, table = block.partition("\n")
    if not title.endswith(":") or not _OPTION.match(table.partition("\n")[0]):
        return []
    rows: list[list[str]] = []
    for line in table.splitlines():
        option = _OPTION.match(line)
        if option:
            rows.append([option[1], option[2] or ""])
        else:
            rows[-1][1] = f"{rows[-1][1]} {line.strip()}".strip()
    return rows


def _joined(blocks: list[str]) -> str:
    return "\n\n".join(blocks).strip()


def _cell(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace("\n", " ")


def descriptors() -> list[descriptor_pb2.FileDescriptorProto]:
    """The files of the API, with their comments.

    Raises:
        PageError: protoc does not take them.
    """
    proto = REPOSITORY / "proto"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "descriptors"
        names = [str(path.relative_to(proto)) for path in sorted(proto.glob("kvcompress/v1/*"))]
        options = [f"-I{proto}", "--include_source_info", f"--descriptor_set_out={made}"]
        if protoc.main(["protoc", *options, *names]) != 0:
            raise PageError("protoc does not take proto/kvcompress/v1")
        return list(descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file)


def api_page() -> str:
    """Returns the calls, messages and values of the API with their comments."""
    files = descriptors()
    lines = ["# API\n", "Package `kvcompress.v1`. [Rules, and how to read a stream]"]
    lines[-1] += "(../proto/README.md).\n"
    for file in files:
        for i, service in enumerate(file.service):
            notes = _comments(file)
            lines += [f"## {service.name}\n", notes.get((6, i), ""), ""]
            for j, method in enumerate(service.method):
                sent = _stream(method.client_streaming) + _reference(method.input_type)
                given = _stream(method.server_streaming) + _reference(method.output_type)
                lines += [f"### {method.name}\n", f"{sent} → {given}\n"]
                lines += [notes.get((6, i, 2, j), ""), ""]
    for file in files:
        notes = _comments(file)
        for i, message in enumerate(file.message_type):
            lines += _message(message, (4, i), notes)
        for i, enum in enumerate(file.enum_type):
            lines += _enum(enum.name, enum, (5, i), notes)
    return "\n".join(lines)


def _comments(file: descriptor_pb2.FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Comments by the path of what they stand before, on one line each paragraph."""
    found = {}
    for location in file.source_code_info.location:
        text = location.leading_comments or location.trailing_comments
        paragraphs = text.strip().split("\n\n")
        joined = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        found[tuple(location.path)] = _plain_brackets(joined)
    return found


def _message(
    message: descriptor_pb2.DescriptorProto,
    path: tuple[int, ...],
    notes: dict[tuple[int, ...], str],
    outer: str = "",
) -> Iterator[str]:
    """A message with a table of its fields, and the messages and values within it."""
    name = outer + message.name
    yield from (f"## {name}\n", notes.get(path, ""), "")
    if message.field:
        yield from ("| field | type | what it is |", "| --- | --- | --- |")
    for i, field in enumerate(message.field):
        kind = _reference(field.type_name) if field.type_name else _scalar(field.type)
        label = "repeated " if field.label == 3 else "optional " if field.proto3_optional else ""
        note = " ".join(notes.get((*path, 2, i), "").split())
        yield f"| `{field.name}` | {label}{kind} | {_cell(note)} |"
    yield ""
    for i, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message(nested, (*path, 3, i), notes, f"{name}.")
    for i, enum in enumerate(message.enum_type):
        yield from _enum(f"{name}.{enum.name}", enum, (*path, 4, i), notes)


def _enum(
    name: str,
    enum: descriptor_pb2.EnumDescriptorProto,
    path: tuple[int, ...],
    notes: dict[tuple[int, ...], str],
) -> Iterator[str]:
    """The values of an enumeration."""
    yield from (f"## {name}\n", notes.get(path, ""), "")
    yield from ("| value | what it means |", "| --- | --- |")
    for i, value in enumerate(enum.value):
        yield f"| `{value.name}` | {_cell(' '.join(notes.get((*path, 2, i), '').split()))} |"
    yield ""


def _stream(streaming: bool) -> str:
    return "stream of " if streaming else ""


def _scalar(kind: "descriptor_pb2.FieldDescriptorProto.Type.ValueType") -> str:
    name = descriptor_pb2.FieldDescriptorProto.Type.Name(kind)
    return f"`{name.removeprefix('TYPE_').lower()}`"


def _reference(name: str) -> str:
    """A type by its name, with a link where it is on the page."""
    short = name.removeprefix(".kvcompress.v1.")
    if short == name or short.endswith("Entry"):
        return f"`{name.lstrip('.').removeprefix('kvcompress.v1.')}`"
    return f"[`{short}`](#{anchor(short)})"


def python_page() -> str:
    """Returns the names that the package exports, for mkdocstrings."""
    text = (REPOSITORY / "client/python/src/kvcompress/_public.py").read_text()
    names = sorted(re.findall(r"^from \S+ import (\w+) as \1$", text, re.MULTILINE))
    first = ["Client", "CompressionResult", "CompressionReport", "DecompressionResult"]
    others = [name for name in names if name not in first and name[0].isupper()]
    modules = ["kvcompress.save_file", "kvcompress.load_file", "kvcompress.torch.load_file"]
    modules += ["kvcompress.options", "kvcompress.connection"]
    modules += ["kvcompress.store.ArtefactStore", "kvcompress.store.StoreOptions"]
    blocks = [f"::: {name}\n" for name in (*(f"kvcompress.{name}" for name in first), *modules)]
    blocks += [f"::: kvcompress.{name}\n" for name in others]
    head = "# Python\n\nWith examples: [the package's README](../client/python/README.md).\n"
    return "\n".join([head, *blocks])


def write(folder: Path, bin_dir: Path) -> None:
    """Writes all pages.

    Raises:
        PageError: A document cannot be a page.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pages = set(documents())
    texts = {name: (REPOSITORY / name).read_text() for name in pages}
    operations = texts[Path("server/OPERATIONS.md")]
    for title, made in SECTIONS.items():
        texts[Path(f"reference/{made}.md")] = section(operations, title)
    pictures: set[Path] = set()
    for name, text in texts.items():
        made, shown = page(name, text, pages)
        pictures |= shown
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(made)
    reference = folder / "reference"
    for program in ("kv-compress", "kv-compressd"):
        (reference / f"{program}.md").write_text(options_page(bin_dir / program))
    (reference / "api.md").write_text(api_page())
    (reference / "python.md").write_text(python_page())
    shutil.copy(REPOSITORY / "deploy/reference/site.css", folder)
    for picture in pictures:
        (folder / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / picture, folder / picture)


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]), Path(sys.argv[2]))
    except PageError as error:
        sys.exit(f"site_pages.py: {error}")
