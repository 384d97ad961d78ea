// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How the allocator is to keep memory in a process that moves caches.

#ifndef KVCOMPRESS_SERVER_HEAPS_H_
#define KVCOMPRESS_SERVER_HEAPS_H_

namespace kvcompress {

// Has the allocator keep one heap for each processor: by default there are
// eight, and what is freed in one is of no use to the others.
//
// And has it keep what messages are made of: by default a chunk of 1 MiB is
// mapped when it comes and unmapped when it goes, and each of its pages faults
// once more, which takes longer than compressing it. What is larger than a few
// messages is mapped still, so that tensors go back to the system at once.
//
// Call it before other threads are started.
void TuneHeaps();

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_HEAPS_H_
