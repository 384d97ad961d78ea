// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The input side of Decompress and DecompressFile: an artefact in, what is
// restored out, whatever carries the bytes. Tells the observer.

#ifndef KVCOMPRESS_SERVER_DECOMPRESS_SESSION_H_
#define KVCOMPRESS_SERVER_DECOMPRESS_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "call.h"
#include "kvcompress/codec.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "profile_set.h"
#include "service.h"

namespace kvcompress {

// Restored bytes are gathered up to this size, or are one block that is larger:
// clients may limit messages to 4 MB.
inline constexpr size_t kMaxOutput = 1 << 20;
static_assert(2 * kMaxOutput >= kMaxDecodedBlock);

class DecompressSession {
 public:
  // `options` outlive this.
  DecompressSession(const ServiceOptions& options, Call* call)
      : limits_{.max_header_bytes = options.max_header_bytes,
                .max_tensor_bytes = options.max_tensor_bytes,
                .still_wanted = [call] { return call->CheckWanted(); },
                .threads = call->threads()},
        options_(options),
        call_(call) {}

  // Once, before anything else.
  absl::Status TakeOptions(const v1::DecompressOptions& options);
  bool begun() const { return decompressor_ != nullptr; }

  // A step: decodes `*bytes` from its front, and appends what is restored to
  // `*restored`, which never becomes larger than kMaxOutput, or than one block
  // of at most kMaxDecodedBlock. True when there may be more without more
  // input; see Decompressor::Restore. Reserves what that needs. CANCELLED once
  // nobody waits for it. REQUIRES: begun.
  absl::StatusOr<bool> Decode(absl::string_view* bytes, std::string* restored);

  // Ends the input. REQUIRES: begun.
  absl::StatusOr<v1::DecompressionReport> Finish();

  // Memory that the decompressor needs, in bytes; see Decompressor.
  uint64_t working_bytes() const {
    return decompressor_ == nullptr ? 0 : decompressor_->working_bytes();
  }

  static absl::Status OutOfOrder(absl::string_view message);

 private:
  absl::Status ReportIntegrity(const absl::Status& status);
  void ReportTime(const DecompressReport& report);

  const DecompressLimits limits_;
  const ServiceOptions& options_;
  Call* const call_;
  // Of the whole call: one that did not find a profile says why as of then.
  std::shared_ptr<const ProfileSet> profiles_;
  std::unique_ptr<Decompressor> decompressor_;
  double decode_seconds_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_DECOMPRESS_SESSION_H_
