#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compresses a safetensors file, or restores one, by a server or by one of its own.

    compress_file.py INPUT OUTPUT [--server ADDRESS] [--codec NAME] [--decompress] [--overwrite]

Needs no native program where a server is named.
"""

import argparse
import os
import sys

import kvcompress


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Compresses a cache, or restores one.")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--server", default=os.environ.get("KVCOMPRESS_SERVER"))
    parser.add_argument("--codec", help="auto, at effort fast, where it is not given")
    parser.add_argument("--decompress", action="store_true")
    parser.add_argument("--overwrite", action="store_true", help="replace OUTPUT if it is there")
    flags = parser.parse_args()
    paths = flags.input, flags.output
    try:
        with kvcompress.Client(flags.server) as client:
            if flags.decompress:
                restored = client.decompress(*paths, overwrite=flags.overwrite).report
                print(f"{restored.tensors_selected} tensors, every checksum right")
            else:
                report = client.compress(
                    *paths, overwrite=flags.overwrite, codec=flags.codec
                ).report
                quality = "exact" if report.metrics.snr_db is None else report.verdict.level.value
                print(f"{report.compression_ratio:.2f}x, {report.codec}, {quality}")
    except (kvcompress.KVCompressError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
