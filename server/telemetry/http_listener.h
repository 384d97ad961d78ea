// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The listening sockets of the HTTP endpoint. Used by one thread.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_LISTENER_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_LISTENER_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "address.h"
#include "file_descriptor.h"
#include "telemetry/http_connection.h"

namespace kvcompress {

class HttpListener {
 public:
  enum class Result : uint8_t {
    kAccepted,
    kNobody,         // waits
    kNoDescriptors,  // somebody waits, but descriptors or memory have run out
  };

  // As ListenOn.
  static absl::StatusOr<HttpListener> Open(ListenAddress* address);

  // At least one, for poll().
  const std::vector<FileDescriptor>& sockets() const { return sockets_; }

  // Takes the next connection of one of them, which does not block.
  static Result Accept(const FileDescriptor& socket, FileDescriptor* connection,
                       HttpPeer* peer);

 private:
  std::vector<FileDescriptor> sockets_;
};

// Descriptors kept for when the process has no others. Another thread may be
// faster to take one that was given up.
class DescriptorReserve {
 public:
  static constexpr size_t kSize = 4;

  DescriptorReserve() { Refill(); }

  // Releases one, so that another can be opened. False when none is left.
  bool Give();
  // Takes what can be had up to kSize.
  void Refill();
  bool empty() const { return held_.empty(); }

 private:
  std::vector<FileDescriptor> held_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_LISTENER_H_
