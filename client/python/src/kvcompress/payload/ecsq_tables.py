# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The symbol tables of `ecsq`: section 5 of FORMAT.md, where they are listed."""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SLOTS = 2048
ESCAPE = -128

FREQUENCIES = """
2045 1
2045 1
2045 1
2045 1
2043 2
2033 7
2005 21
1945 51
1849 99
1715 165 1
1559 243 1
1389 324 5
1219 399 14 1
1059 456 37 1
911 487 76 4 1
777 493 126 14 1 1
663 475 176 35 4 1 1
561 442 216 67 14 2 1 1
475 399 240 103 32 8 2 1 1
401 355 246 134 58 20 6 2 1 1
339 310 239 155 85 39 16 6 2 1 1
285 268 222 164 107 62 32 15 6 2 1 1 1
241 229 201 162 119 81 50 29 15 8 4 2 1 1 1
203 196 178 153 123 93 67 45 28 17 10 5 3 1 1 1 1
171 166 156 139 120 98 77 58 42 29 19 12 8 5 3 2 1 1 1 1
144 140 134 124 111 97 82 67 53 41 31 22 16 11 7 5 3 2 1 1 1 1 1
120 119 115 109 101 91 81 70 60 49 40 32 25 19 14 10 8 5 4 3 2 1 1 1 1 1 1
102 100 98 94 89 83 76 69 62 54 47 40 33 27 22 18 14 11 8 6 5 4 3 2 1 1 1 1 1 1 1
"""
"""A row for each table: the frequencies of 0, 1 and so on."""

TABLES = 28


class Tables(NamedTuple):
    """What each slot of each table stands for: [TABLES, SLOTS]."""

    symbol: npt.NDArray[np.int64]
    frequency: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]

    @staticmethod
    @cache
    def get() -> "Tables":
        """Makes them once."""
        tables = Tables(*(np.zeros((TABLES, SLOTS), np.int64) for _ in range(3)))
        for table, row in enumerate(FREQUENCIES.split("\n")[1:-1]):
            half = [int(number) for number in row.split()]
            symbols = [*range(1 - len(half), len(half)), ESCAPE]
            counts = half[:0:-1] + half
            counts.append(SLOTS - sum(counts))
            tables.symbol[table] = np.repeat(symbols, counts)
            tables.frequency[table] = np.repeat(counts, counts)
            tables.offset[table] = np.concatenate([np.arange(count) for count in counts])
        return tables
