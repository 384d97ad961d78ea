// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Descriptors 0 to 2 of a process that was started without some of them.
//
// A program that calls this has those that are closed opened before anything
// else: otherwise the next file or socket that it opens gets the number, and is
// then read as standard input or written to as standard output. Libraries open
// such when they are loaded, and so this is done before main, and before them.
// Reading what stands for standard input is an error; what is written to the
// others is lost.

#ifndef KVCOMPRESS_SERVER_STANDARD_DESCRIPTORS_H_
#define KVCOMPRESS_SERVER_STANDARD_DESCRIPTORS_H_

namespace kvcompress {

// Those that were closed.
struct ClosedDescriptors {
  bool input = false;
  bool output = false;
  bool error = false;
};

const ClosedDescriptors& OpenStandardDescriptors();

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_STANDARD_DESCRIPTORS_H_
