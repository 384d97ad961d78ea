// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Artefacts that are restored in place, for tests and searches.

#ifndef KVCOMPRESS_TESTS_UNIT_SUPPORT_PLACED_H_
#define KVCOMPRESS_TESTS_UNIT_SUPPORT_PLACED_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/placed_decompressor.h"
#include "kvcompress/threads.h"

namespace kvcompress::testing {

// What a file is to those who restore it: it has no memory of its own, but
// copies, or takes copies.
class CopyingSource final : public PlacedSource {
 public:
  explicit CopyingSource(absl::string_view bytes) : bytes_(bytes) {}

  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<absl::string_view> Read(uint64_t offset, size_t size,
                                         std::string* buffer) const override {
    const absl::string_view bytes = bytes_.substr(offset, size);
    buffer->assign(bytes.data(), bytes.size());
    return *buffer;
  }

 private:
  const absl::string_view bytes_;
};

class CopyingSink final : public PlacedSink {
 public:
  explicit CopyingSink(std::string* bytes) : bytes_(bytes) {}

  absl::Status Write(uint64_t offset, absl::string_view bytes) override {
    if (offset + bytes.size() > bytes_->size()) {
      return absl::InternalError("bytes after the end of the output");
    }
    std::copy(bytes.begin(), bytes.end(), bytes_->data() + offset);
    return absl::OkStatus();
  }

 private:
  std::string* const bytes_;
};

// Takes what is written in any order, by any thread, and once.
class AppendingSink final : public PlacedSink {
 public:
  absl::Status Write(uint64_t offset, absl::string_view bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!parts_.emplace(offset, bytes).second) {
      return absl::InternalError("bytes that were written before");
    }
    return absl::OkStatus();
  }

  // All of it, from `begin`; INTERNAL where something is missing.
  absl::StatusOr<std::string> Take(uint64_t begin) {
    std::string all;
    for (const auto& [offset, bytes] : parts_) {
      if (offset != begin + all.size()) {
        return absl::InternalError("a gap, or bytes written twice");
      }
      all += bytes;
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::string> parts_;
};

// Restores from memory to memory, or with copies. Bytes that nobody writes
// are 0xee.
inline absl::StatusOr<std::string> RestorePlaced(
    absl::string_view artefact, DecompressOptions options,
    const Threads& threads, bool copies, DecompressReport* report = nullptr) {
  const CopyingSource copying(artefact);
  const MemorySource memory(artefact);
  DecompressLimits limits;
  limits.threads = threads;
  // Jobs may write until the decompressor ends.
  std::string restored;
  CopyingSink to_copies(&restored);
  std::optional<MemorySink> to_memory;
  PlacedDecompressor decompressor(std::move(options), limits);
  absl::Status status = decompressor.Open(
      copies ? static_cast<const PlacedSource*>(&copying) : &memory);
  if (!status.ok()) return status;
  restored.assign(decompressor.output_size(), '\xee');
  to_memory.emplace(absl::MakeSpan(restored));
  PlacedSink* const sink =
      copies ? static_cast<PlacedSink*>(&to_copies) : &*to_memory;
  for (bool more = true; more;) {
    const absl::StatusOr<bool> step =
        decompressor.Restore(sink, absl::Milliseconds(1));
    if (!step.ok()) return step.status();
    more = *step;
  }
  absl::StatusOr<DecompressReport> end = decompressor.Finish();
  if (!end.ok()) return end.status();
  if (decompressor.done_bytes() != artefact.size()) {
    return absl::InternalError("not all of the artefact was restored");
  }
  if (report != nullptr) *report = *std::move(end);
  return restored;
}

struct Compressed {
  std::string artefact;
  std::string reconstructed;
  CompressReport report;
};

// Compresses from memory, or with copies: the payloads too, to where they
// belong.
inline absl::StatusOr<Compressed> CompressPlaced(absl::string_view file,
                                                 const CompressOptions& options,
                                                 const Threads& threads,
                                                 bool copies) {
  const CopyingSource copying(file);
  const MemorySource memory(file);
  CompressLimits limits;
  limits.threads = threads;
  AppendingSink sink;  // jobs may write until the compressor ends
  Compressor compressor(options, limits);
  if (copies) compressor.WriteTo(&sink);
  CompressOutput output;
  Compressed out;
  for (bool more = true; more;) {
    const absl::StatusOr<bool> step = compressor.AppendFrom(
        copies ? static_cast<const PlacedSource&>(copying) : memory,
        absl::Milliseconds(1), &output);
    if (!step.ok()) return step.status();
    more = *step;
    out.artefact += std::exchange(output.artefact, "");
    out.reconstructed += std::exchange(output.reconstructed, "");
  }
  absl::StatusOr<CompressReport> report = compressor.Finish();
  if (!report.ok()) return report.status();
  if (copies) {
    if (!out.artefact.empty()) {
      return absl::InternalError("output beside what was written");
    }
    absl::StatusOr<std::string> written =
        sink.Take(compressor.reserved_header_size());
    if (!written.ok()) return written.status();
    out.artefact = *std::move(written);
  }
  out.artefact.insert(0, compressor.header());
  out.report = *std::move(report);
  return out;
}

// `compressed`, where a file that lies somewhere becomes the same, by one
// thread from memory and by `threads` with copies. Else INTERNAL.
inline absl::StatusOr<Compressed> IfPlacedAgrees(
    absl::string_view file, const CompressOptions& options,
    const Threads& threads, absl::StatusOr<Compressed> compressed) {
  for (const bool copies : {false, true}) {
    const absl::StatusOr<Compressed> placed =
        CompressPlaced(file, options, copies ? threads : Threads(), copies);
    if (placed.status() != compressed.status()) {
      return absl::InternalError(
          absl::StrCat("in place: ", placed.status().ToString(),
                       ", in steps: ", compressed.status().ToString()));
    }
    if (!placed.ok()) continue;
    if (placed->artefact != compressed->artefact ||
        placed->reconstructed != compressed->reconstructed) {
      return absl::InternalError("it becomes other bytes in place");
    }
    const std::vector<Warning>& warnings = placed->report.warnings;
    if (!std::equal(warnings.begin(), warnings.end(),
                    compressed->report.warnings.begin(),
                    compressed->report.warnings.end(),
                    [](const Warning& a, const Warning& b) {
                      return a.message == b.message && a.tensor == b.tensor;
                    })) {
      return absl::InternalError("it has other warnings in place");
    }
  }
  return compressed;
}

// `restored`, where an artefact comes back the same, or as damaged, in place:
// by one thread from memory to memory, and by `threads` with copies. Else
// INTERNAL.
inline absl::StatusOr<std::string> IfPlacedAgrees(
    absl::string_view artefact, const DecompressOptions& options,
    const Threads& threads, absl::StatusOr<std::string> restored) {
  for (const bool copies : {false, true}) {
    const absl::StatusOr<std::string> placed =
        RestorePlaced(artefact, options, copies ? threads : Threads(), copies);
    if (placed.status().code() != restored.status().code()) {
      return absl::InternalError(
          absl::StrCat("in place: ", placed.status().ToString(),
                       ", in steps: ", restored.status().ToString()));
    }
    if (placed.ok() && *placed != *restored) {
      return absl::InternalError("other bytes are restored in place");
    }
  }
  return restored;
}

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_SUPPORT_PLACED_H_
