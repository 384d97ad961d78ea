// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The work of Decompress and DecompressFile: an artefact in, what is restored
// out, within the memory that the call has reserved. Notifies the observer.

#ifndef KVCOMPRESS_SERVER_DECOMPRESS_SESSION_H_
#define KVCOMPRESS_SERVER_DECOMPRESS_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "call.h"
#include "kvcompress/codec.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/placed_decompressor.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "profile_set.h"
#include "service.h"

namespace kvcompress {

// Restored bytes are gathered up to this size, or are one block that is larger:
// clients may limit messages to 4 MB.
inline constexpr size_t kMaxOutput = 1 << 20;
static_assert(2 * kMaxOutput >= kMaxDecodedBlock);

// What a call is about to restore, and how its end is reported. Not thread
// safe.
class DecompressCall {
 public:
  // `options` outlive this.
  DecompressCall(const ServiceOptions& options, Call* call)
      : limits_{.max_header_bytes = options.max_header_bytes,
                .max_tensor_bytes = options.max_tensor_bytes,
                .still_wanted = [call] { return call->CheckWanted(); },
                .threads = call->threads()},
        options_(options),
        call_(call) {}

  const DecompressLimits& limits() const { return limits_; }

  // With the profiles that there are now. Once.
  absl::StatusOr<DecompressOptions> Convert(
      const v1::DecompressOptions& options);

  // Reserves what a decompressor needs; it works with one thread where memory
  // for more is not to spare.
  template <typename AnyDecompressor>
  absl::Status Reserve(AnyDecompressor* decompressor) {
    if (decompressor->threads() > 1 &&
        !call_->ReserveIfSpare(decompressor->working_bytes())) {
      decompressor->UseOneThread();
    }
    return call_->ReserveWorking(decompressor->working_bytes());
  }
  absl::Status ReserveWorking(uint64_t bytes) {
    return call_->ReserveWorking(bytes);
  }
  absl::Status CheckWanted() const { return call_->CheckWanted(); }

  // An error of restoring, as the client gets it; counts damage.
  absl::Status Explain(const absl::Status& status);

  // The end of `seconds` of restoring.
  absl::StatusOr<v1::DecompressionReport> Report(
      const absl::StatusOr<DecompressReport>& report, double seconds);

 private:
  const DecompressLimits limits_;
  const ServiceOptions& options_;
  Call* const call_;
  // Of the whole call: one that did not find a profile says why as of then.
  std::shared_ptr<const ProfileSet> profiles_;
};

// An artefact that comes in messages.
class DecompressSession {
 public:
  DecompressSession(const ServiceOptions& options, Call* call)
      : its_(options, call) {}

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
  DecompressCall its_;
  std::unique_ptr<Decompressor> decompressor_;
  double seconds_ = 0;
};

// An artefact in a file.
class PlacedDecompressSession {
 public:
  PlacedDecompressSession(const ServiceOptions& options, Call* call)
      : its_(options, call) {}

  // Once, before anything else.
  absl::Status TakeOptions(const v1::DecompressOptions& options);

  // Restores for about so long from `artefact` to `output`, which outlive this
  // and are the same in every call; `output` may be null for what is only
  // verified. True when there is more. Reserves what that needs.
  absl::StatusOr<bool> Restore(const PlacedSource* artefact, PlacedSink* output,
                               absl::Duration most);

  // Ends it. REQUIRES: the last call of Restore returned false.
  absl::StatusOr<v1::DecompressionReport> Finish();

  // Memory that is needed, in bytes, and bytes of the artefact that were
  // restored.
  uint64_t working_bytes() const {
    return opened_ ? decompressor_->working_bytes() : 0;
  }
  uint64_t done_bytes() const {
    return opened_ ? decompressor_->done_bytes() : 0;
  }
  uint64_t output_size() const { return decompressor_->output_size(); }

 private:
  absl::Status Open(const PlacedSource* artefact);

  DecompressCall its_;
  std::unique_ptr<PlacedDecompressor> decompressor_;
  bool opened_ = false;
  double seconds_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_DECOMPRESS_SESSION_H_
