# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m kvcompress` and the console script `kv-compress`: they run the native kv-compress."""

import os
import sys
from typing import NoReturn

from kvcompress._programs import find_program

_NAME = "kv-compress"


def main() -> NoReturn:
    """Replaces this process by kv-compress, with the same arguments.

    Raises:
        SystemExit: There is no kv-compress, or it is not for this system; with the message.
    """
    program = find_program(_NAME)
    if program is None:
        sys.exit(
            f"Error: no {_NAME} to run: build it with deploy/build or install the Debian package, "
            "then put it on the PATH or name its folder in KVCOMPRESS_BIN_DIR; "
            "kvcompress.Client(ADDRESS) calls a server without it"
        )
    try:
        os.execv(program, [str(program), *sys.argv[1:]])  # noqa: S606
    except OSError as error:
        sys.exit(f"Error: {program} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
