// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A strict reader and a writer of safetensors headers.
//
// Format: https://github.com/huggingface/safetensors. The checks are those of
// its reference parser, and two more: a key may appear once only in any object,
// and a tensor has no fields beyond the three of the format, because what is
// not understood could not be given back.

#ifndef KVCOMPRESS_SAFETENSORS_H_
#define KVCOMPRESS_SAFETENSORS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// The format's own limit on the length of a header, in bytes.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
// Bytes that a file begins with, the length of its header; and as many as are
// read of one at a time, so that what they take can be reserved before.
inline constexpr uint64_t kHeaderLength = 8;
inline constexpr uint64_t kHeaderPart = 256 << 10;
// Most tensors of a cache, and most entries of its `__metadata__`, in files and
// in tables: what a header takes when it is parsed goes with their number. An
// artefact has space for as many entries again.
inline constexpr uint64_t kMaxTensors = 131'072;
inline constexpr uint64_t kMaxMetadata = 4096;

struct SafetensorsEntry {
  TensorSpec spec;  // role and layer are not filled in
  // Half-open range of bytes, relative to the end of the header.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  // In the order of the data.
  std::vector<SafetensorsEntry> tensors;
  // `__metadata__`, in the order of the file.
  std::vector<std::pair<std::string, std::string>> metadata;
  // Bytes of data after the header.
  uint64_t data_size = 0;
};

// Parses and checks the JSON text of a header, without its length. Offsets in
// errors count from the start of the file, so the text begins at 8.
// INVALID_ARGUMENT for any broken rule. Looks at the checkpoint every few
// thousand bytes.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::string_view json, Checkpoint* checkpoint = nullptr);

// The first bytes of a file: length, JSON, and spaces up to a multiple of 8.
// Metadata is left out when empty. Not complete where `checkpoint` stops it.
std::string SerializeSafetensorsHeader(const SafetensorsHeader& header,
                                       Checkpoint* checkpoint = nullptr);

// Whether `text` is valid UTF-8, as every string of a header must be.
bool IsValidUtf8(absl::string_view text);

// Appends `text` to `*json` as a JSON string, quotes included.
// REQUIRES: IsValidUtf8(text).
void AppendJsonString(absl::string_view text, std::string* json);

// Collects the length and the text of a header from chunks cut anywhere. Memory
// grows with the bytes that have arrived, never with the length announced.
class SafetensorsHeaderReader {
 public:
  // Headers longer than `max_header_bytes` are refused with OUT_OF_RANGE, those
  // longer than the format allows, and those that do not begin with '{', with
  // INVALID_ARGUMENT.
  explicit SafetensorsHeaderReader(uint64_t max_header_bytes)
      : max_header_bytes_(max_header_bytes) {}

  // Takes what belongs to the header off the front of `*bytes`.
  absl::Status Append(absl::string_view* bytes);

  // Whether the header is complete.
  bool done() const {
    return raw_.size() >= 8 && raw_.size() == 8 + json_size_;
  }

  // Bytes of the length field, and of the text that it announces; no bound
  // while it has not come.
  uint64_t announced_size() const {
    return raw_.size() < 8 ? std::numeric_limits<uint64_t>::max()
                           : 8 + json_size_;
  }
  // The length field and the text, as they arrived.
  const std::string& raw() const { return raw_; }
  // The text. REQUIRES: done().
  absl::string_view json() const { return absl::string_view(raw_).substr(8); }

  // The error for an input that ended before done().
  absl::Status TruncatedError() const;

 private:
  uint64_t max_header_bytes_;
  uint64_t json_size_ = 0;
  std::string raw_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SAFETENSORS_H_
