# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Safetensors files that must be refused, each named after what is wrong with it.

`CASES` is the corpus, and `CONTROLS` are unusual files that must be taken. All of it
is made by code, not kept as files: small, the same on every machine, and the fault of
each file can be read in one line. Run the package (`python -m malformed DIRECTORY`) to
have the corpus as files, for instance as seeds of a fuzzer.
"""

from malformed.case import Case
from malformed.cases import CASES, CONTROLS

__all__ = ["CASES", "CONTROLS", "Case"]
