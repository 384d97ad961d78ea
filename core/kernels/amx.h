// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tiles by Intel AMX (AMX-TILE, AMX-INT8). Tile registers and their
// configuration belong to a thread. Each kernel configures them, calls nothing,
// and releases them before it returns, so that threads that do other work have
// no tile state to be saved (8 KiB at each switch), and nothing needs to be set
// up for a thread.

#ifndef KVCOMPRESS_KERNELS_AMX_H_
#define KVCOMPRESS_KERNELS_AMX_H_

#include "kernels/tiles.h"

namespace kvcompress::kernels {

// Asks the system whether this process may use tiles: see AllowTiles of
// kvcompress/kernels.h. Thread safe.
bool AllowAmx();

// Null unless AllowAmx() has given true.
const TileKernels* Amx();

}  // namespace kvcompress::kernels

#endif  // KVCOMPRESS_KERNELS_AMX_H_
