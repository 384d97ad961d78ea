// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What a process that moves caches wants of its libraries.

#ifndef KVCOMPRESS_SERVER_TUNING_H_
#define KVCOMPRESS_SERVER_TUNING_H_

namespace kvcompress {

// Makes the allocator keep one heap for each processor: by default there are
// eight, and what is freed in one is of no use to the others.
//
// And has it keep what messages are made of: by default a chunk of 1 MiB is
// mapped when it comes and unmapped when it goes, and each of its pages faults
// once more, which takes longer than compressing it. What is larger than a few
// messages is mapped still, so that tensors go back to the system at once.
//
// And has Abseil's locks, which are gRPC's too, not look for an order of
// locking that might deadlock: Debian's Abseil is built with that search, which
// ends the process when it finds one and takes time in every call.
//
// Call it before other threads are started.
void TuneProcess();

// Has gRPC keep to GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, which it ignores
// otherwise: that of 1.51 has an experiment, `tcp_read_chunks`, that is on by
// default and takes 8 KiB or 64 KiB from a connection at a time. A process that
// this one starts inherits the variable.
//
// Call it before the process uses gRPC, or has other threads.
void BoundReadsOfGrpc();

// Keeps gRPC up until the process ends. Otherwise the last server or channel
// that goes takes it down, and waits for a thread that polls for up to 10
// seconds if a write had to wait lately (grpc/grpc issue 41050): a stopped
// server, or a command that failed, would end so much later.
//
// Call it before the process uses gRPC, and after signals were blocked that its
// threads must not take.
void KeepGrpc();

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TUNING_H_
