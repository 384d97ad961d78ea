// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The request side that Compress and Measure share: checks the order of the
// messages and feeds a Compressor in slices, so that what one message gives is
// bounded however large the message is.

#ifndef KVCOMPRESS_SERVER_COMPRESS_SESSION_H_
#define KVCOMPRESS_SERVER_COMPRESS_SESSION_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "call.h"
#include "convert.h"
#include "kvcompress/compressor.h"
#include "kvcompress/error.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "service.h"

namespace kvcompress {

// Input that is encoded before its output is sent, in bytes.
inline constexpr size_t kCompressSlice = 1 << 20;

class CompressSession {
 public:
  CompressSession(const ServiceOptions& options, Call* call)
      : limits_{.max_header_bytes = options.max_header_bytes,
                .max_tensor_bytes = options.max_tensor_bytes},
        call_(call) {}

  // Takes a CompressRequest or a MeasureRequest, which must outlive the calls
  // of Step that consume it.
  template <typename Request>
  absl::Status Take(const Request& request) {
    switch (request.message_case()) {
      case Request::kOptions:
        return TakeOptions(request.options());
      case Request::kSafetensors:
        return TakeFile(request.safetensors());
      case Request::kTensors:
        return TakeTable(request.tensors());
      case Request::kTensorData:
        return TakeData(Source::kTable, request.tensor_data().name(),
                        request.tensor_data().data());
      case Request::MESSAGE_NOT_SET:
        break;
    }
    return OutOfOrder("the message is empty");
  }

  // The same for what needs no message: the options, and then the next bytes of
  // a file, which must outlive the calls of Step that consume them.
  absl::Status TakeOptions(const v1::CompressOptions& options);
  absl::Status TakeFile(absl::string_view bytes) {
    return TakeData(Source::kFile, "", bytes);
  }

  // Encodes a slice of what was taken; false when nothing of it is left.
  absl::StatusOr<bool> Step();

  // Ends the input and reports, also to the observer.
  absl::StatusOr<CompressReport> Finish();

  // What has been produced and not yet sent.
  CompressOutput& output() { return output_; }
  // REQUIRES: options were taken.
  const Compressor& compressor() const { return *compressor_; }
  // Memory that the compressor needs, in bytes; see Compressor.
  uint64_t working_bytes() const {
    return compressor_ == nullptr ? 0 : compressor_->working_bytes();
  }
  bool begun() const { return compressor_ != nullptr && compressor_->begun(); }
  const v1::CompressOptions& options() const { return options_; }

 private:
  enum class Source { kNone, kFile, kTable };

  absl::Status TakeTable(const v1::TensorTable& table);
  absl::Status TakeData(Source source, absl::string_view tensor,
                        absl::string_view data);
  static absl::Status OutOfOrder(absl::string_view message);

  const CompressLimits limits_;
  Call* const call_;
  v1::CompressOptions options_;
  std::unique_ptr<Compressor> compressor_;
  CompressOutput output_;
  Source source_ = Source::kNone;
  absl::string_view tensor_;
  absl::string_view pending_;
  double encode_seconds_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_COMPRESS_SESSION_H_
