// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace kvcompress {
namespace {

constinit ClosedDescriptors closed_at_start;

// Sanitizers are not there yet.
__attribute__((no_sanitize("address", "thread", "undefined"))) void OpenClosed(
    int, char**, char**) {
  bool* const was_closed[] = {&closed_at_start.input, &closed_at_start.output,
                              &closed_at_start.error};
  // The lowest number that is free is the next one.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    *was_closed[fd] = true;
    // Nobody can read this one, and it is there in every container.
    if (fd == STDIN_FILENO || open("/dev/null", O_WRONLY) < 0) {
      open("/", O_PATH | O_DIRECTORY);
    }
  }
}

// What is in this section runs before the constructors of libraries.
__attribute__((section(".preinit_array"),
               used)) void (*const open_at_start)(int, char**,
                                                  char**) = &OpenClosed;

}  // namespace

const ClosedDescriptors& OpenStandardDescriptors() { return closed_at_start; }

}  // namespace kvcompress
