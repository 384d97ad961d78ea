# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`python -m kvcompress`: the command line of kv-compress, in Python.

The same flags, JSON, messages and exit codes, over the server that `-server` or
KVCOMPRESS_SERVER names, else over one that is started for the command.
"""
