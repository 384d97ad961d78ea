# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings that need no server. tests/contract runs the others."""

import doctest
from types import ModuleType

import pytest

from kvcompress import _arrays, options, payload


@pytest.mark.parametrize("module", [_arrays, options, payload], ids=lambda each: each.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    done = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert done.failed == 0
    assert done.attempted > 0
