# shellcheck shell=bash
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

# Under which names a release is published. Source it; tests/deploy/test_names.py finds what has
# to follow when one of them changes.

# The wheel's on the index of packages, which client/python/pyproject.toml has as well.
# shellcheck disable=SC2034
package_name=kvcompress
# The image's, with its registry and without a tag. docker.io/library is what an image without a
# registry is taken for.
# shellcheck disable=SC2034
image_name=docker.io/library/kvcompress
