// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The request side that Compress and Measure share: checks the order of the
// messages and feeds a Compressor in slices, so that the output of one message
// is bounded however large the message is.

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
  // `options` outlive this.
  CompressSession(const ServiceOptions& options, Call* call)
      : limits_{.max_header_bytes = options.max_header_bytes,
                .max_tensor_bytes = options.max_tensor_bytes,
                .still_wanted = [call] { return call->CheckWanted(); },
                .threads = call->threads()},
        options_(options),
        call_(call) {}

  // The options, first and once.
  absl::Status TakeOptions(const v1::CompressOptions& options);
  // Either a table, once, and then data of its tensors...
  absl::Status TakeTable(const v1::TensorTable& table);
  // ...or the next bytes of a file. Bytes must outlive the calls of Step that
  // consume them.
  absl::Status TakeTensor(const v1::TensorChunk& chunk) {
    return TakeData(Source::kTable, chunk.name(), chunk.data());
  }
  absl::Status TakeFile(absl::string_view bytes) {
    return TakeData(Source::kFile, "", bytes);
  }

  // ...or a file from where it lies, which outlives this: works for about so
  // long, or until there is output; see Compressor::AppendFrom.
  absl::StatusOr<bool> TakeFrom(const PlacedSource& file, absl::Duration most);
  // Payloads are written here, after the options and before any input; see
  // Compressor::WriteTo.
  void WriteTo(PlacedSink* artefact) { compressor_->WriteTo(artefact); }
  // Whether several threads were planned for it, once begun.
  bool has_threads() const { return has_threads_; }

  static absl::Status OutOfOrder(absl::string_view message);

  // Encodes a slice of what was taken; false when nothing of it is left.
  absl::StatusOr<bool> Step();

  // Ends the input and reports, also to the observer.
  absl::StatusOr<CompressReport> Finish();
  // The report as the client gets it.
  absl::StatusOr<v1::CompressionReport> ToMessage(const CompressReport& report);

  // What has been produced and not yet sent.
  CompressOutput& output() { return output_; }
  // REQUIRES: options were taken.
  const Compressor& compressor() const { return *compressor_; }
  // Memory that the compressor needs, with `next` more bytes of a file, in
  // bytes; see Compressor.
  uint64_t working_bytes(uint64_t next = 0) const {
    if (compressor_ == nullptr) return 0;
    return compressor_->working_bytes(source_ == Source::kFile ? next : 0);
  }
  bool begun() const { return compressor_ != nullptr && compressor_->begun(); }

 private:
  enum class Source { kNone, kFile, kTable };

  // The profile that a request names, or those that may be chosen for it.
  absl::Status FindProfiles(const v1::CompressOptions& request,
                            CompressOptions* options) const;

  absl::Status TakeData(Source source, absl::string_view tensor,
                        absl::string_view data);
  // Once the header is known. OUT_OF_RANGE, with what would help, when the
  // codec needs more memory for the largest tensor than a call can have. Uses
  // one thread where there is no memory for more.
  absl::Status CheckFits();

  const CompressLimits limits_;
  // For what is done here, not in the core.
  Checkpoint checkpoint_{limits_.still_wanted};
  const ServiceOptions& options_;
  Call* const call_;
  bool report_tensors_ = false;  // whether the report lists every tensor
  std::unique_ptr<Compressor> compressor_;
  CompressOutput output_;
  Source source_ = Source::kNone;
  absl::string_view tensor_;
  absl::string_view pending_;
  bool has_threads_ = false;
  double encode_seconds_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_COMPRESS_SESSION_H_
