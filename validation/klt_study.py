# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Takes `klt` apart on a real model: what each step of it is worth, and what misleads it.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    PYTHONPATH=client/python/src $PYTHON validation/klt_study.py

Windows, caches and scores are those of codec_study.py. See README.md next to this file.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import kvcompress
from codec_study import machine, parse_study, quieten, say, setting_of, words_of
from compression_bridge import open_client
from measure import report
from measure.rows import Row, ServiceRow
from measure.study import Study
from measure.variants import ASKED, Variant, real_attention

STEPS = "2,2.5"
FIRST = 100


def variants(client: kvcompress.Client, study: Study) -> Iterator[Row]:
    """Yields the rows: the reference, klt ultra, and it in parts."""
    version = f"kvcompress {client.server_info().version}"

    def klt(name: str, preset: str, **more: Any) -> Variant:
        options = {"codec": f"klt:{preset}", **more.pop("options", {})}
        return Variant(client, name, version, options, **more)

    yield ServiceRow(client, report.REFERENCE, version, {"codec": "int4"})
    yield klt("klt ultra", "ultra")
    yield klt("its steps, all tokens alike", f"{STEPS},96,0,0.35")
    yield klt("its steps, all layers alike", f"{STEPS},96,0.3")
    yield klt("all layers alike, at about its size", "1.5,2.35,96,0.45")
    yield klt("its steps, 32 directions", f"{STEPS},32,0.3,0.35")
    yield Variant(client, "its steps, no directions (ecsq)", version, {"codec": f"ecsq:{STEPS}"})
    yield klt("ultra, told that there is no rotation", "ultra", options={"rope_theta": 0.0})
    yield klt("ultra, told a wrong base, 500000", "ultra", options={"rope_theta": 500000.0})
    yield klt(f"ultra, without the first {FIRST} tokens", "ultra", first=FIRST)
    yield klt(
        f"ultra, told what the last {ASKED} queries look at",
        "ultra",
        attention=real_attention(study),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study and writes its table and numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parsed = parse_study(parser, arguments)
    quieten(parsed.threads)
    setting = setting_of(parsed)
    study = Study(setting, parsed.cache, say)
    rows = list(variants(open_client(), study))
    results = study.run(rows)
    setup = {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "machine": machine()}
    names = [{"name": row.name, "family": row.family, "version": row.version} for row in rows]
    document = report.document(setup, names, results, [])
    parsed.output.mkdir(parents=True, exist_ok=True)
    (parsed.output / "klt_study.json").write_text(json.dumps(document, indent=1) + "\n")
    page = "\n".join(
        [
            "<!-- Written by validation/klt_study.py; do not edit. -->",
            "# klt, taken apart",
            "",
            f"The windows of [codec_study.md](codec_study.md); {setup['date']}, "
            f"{setup['machine']}, `{shlex.join(words_of('klt_study.py', setting))}`.",
            "",
            *report.table(document["rows"]),
            "",
        ]
    )
    (parsed.output / "klt_study.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
