# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The corpus.

Sources: the rules of the format (https://github.com/huggingface/safetensors), the
two rules that kvcompress/safetensors.h adds to them, and the faults that other
loaders were found to have; those cases name the fault in a comment.
"""

from malformed.build import entry, framed, tensors
from malformed.case import SOUND, Case
from malformed.entries import ENTRIES
from malformed.headers import HEADERS

CASES: tuple[Case, ...] = (*HEADERS, *ENTRIES)

# Unusual files that the format allows: they must be taken.
CONTROLS: dict[str, bytes] = {
    "one_tensor": SOUND,
    "no_tensors": framed("{}"),
    "only_metadata": framed('{"__metadata__":{"a":"b"}}'),
    "scalar": tensors(bytes(4), x=entry([], [0, 4])),
    "empty_tensor": tensors(b"", x=entry([0], [0, 0])),
    "empty_tensor_of_many_dimensions": tensors(b"", x=entry([3, 0, 2**31], [0, 0])),
    "tensors_in_another_order_than_their_data": tensors(
        bytes(range(12)), x=entry(offsets=[4, 12]), y=entry([1], [0, 4])
    ),
    "fields_in_another_order": framed(
        '{"x":{"data_offsets":[0,8],"shape":[2],"dtype":"F32"}}', bytes(8)
    ),
    "spaces_inside_and_after_the_json": framed(
        '{ "x" : {"dtype":"F32", "shape":[2],\n "data_offsets":[0,8]} }     ', bytes(8)
    ),
    "metadata_at_the_end": framed(
        '{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{}}', bytes(8)
    ),
    "name_with_escapes": framed(
        '{"\\u00e9\\n\\"/":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)
    ),
    "name_empty": framed('{"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)),
    "shape_of_32_dimensions": tensors(x=entry([1] * 31 + [2])),
}
