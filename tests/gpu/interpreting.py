# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Triton's interpreter without what costs most of its time and is not needed."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from triton.runtime import (  # type: ignore[import-not-found,unused-ignore]
    interpreter,
)


@contextmanager
def fast_interpreter() -> Iterator[None]:
    """Makes the interpreter several times faster.

    It patches Triton's language for every call of a function, for milliseconds, and computes every
    sum again to assert that it fits, which without `debug` it does not.
    """
    patch, patched = interpreter._patch_lang, set()

    def once(function: Callable[..., object]) -> object:
        modules = filter(inspect.ismodule, function.__globals__.values())
        key = frozenset(id(m) for m in modules if m in (interpreter.tl, interpreter.tl.core))
        if key not in patched:
            patched.add(key)
            patch(function)
        return interpreter._LangPatchScope()

    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    with (
        mock.patch.object(interpreter, "_patch_lang", once),
        mock.patch.object(interpreter.interpreter_builder, "options", options),
    ):
        yield
