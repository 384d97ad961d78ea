// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What restoring an artefact takes and returns, worked out from its header
// before the first payload is read: what is selected, where each payload lies,
// where each restored tensor goes, and what memory that needs. Internal to the
// library.

#ifndef KVCOMPRESS_PLAN_DECOMPRESS_PLAN_H_
#define KVCOMPRESS_PLAN_DECOMPRESS_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/layout.h"
#include "kvcompress/threads.h"
#include "pipeline/groups.h"
#include "pipeline/job_queue.h"
#include "pipeline/selection.h"

namespace kvcompress {

// What is decoded and not given back as it is comes in slices of this many
// bytes, or in blocks that are larger.
inline constexpr size_t kAsideBytes = 64 << 10;

// DATA_LOSS for an artefact that goes on after its last payload.
absl::Status TrailingBytes(uint64_t offset);

// A header that cannot be read is damage where an artefact was promised.
absl::Status ArtefactHeaderError(const absl::Status& status);

// Does not change once it is made, but that its owner may take what it needs no
// longer.
struct DecompressPlan {
  // A tensor of the source. It is restored from `count` payloads: its own, or
  // those of its views.
  struct Source {
    size_t first = 0;
    size_t count = 1;
    std::optional<size_t> laid_out;  // index into header.laid_out
    uint64_t begin = 0;  // bytes in the output, where it is selected
  };

  // The errors of Decompressor::Restore that a header can cause, and that of
  // the checkpoint, which may be null.
  static absl::StatusOr<DecompressPlan> Make(const DecompressOptions& options,
                                             const DecompressLimits& limits,
                                             ArtefactHeader header,
                                             uint64_t header_size,
                                             Checkpoint* checkpoint);

  // The layout in which a tensor is restored, by its index in header.laid_out.
  const Layout& LaidOut(size_t index) const;
  // The same; null for a tensor without.
  const Layout* LayoutOf(const Source& source) const {
    return source.laid_out ? &LaidOut(*source.laid_out) : nullptr;
  }
  // What a tensor that is selected is restored to.
  absl::StatusOr<TensorSpec> SpecOf(const Source& source) const;
  // Where the payload of a tensor begins in the artefact, in bytes.
  uint64_t PayloadBegin(size_t tensor) const;
  // The last tensor whose payload must have come before one can be decoded.
  size_t NeededFor(size_t tensor) const;
  // Whether anything of a group of a profile is given back or checked.
  bool Needs(size_t group) const;
  // What is held besides the header, in bytes, with so many tensors decoded at
  // a time, and as many more that wait for it or to be given back.
  uint64_t MemoryWith(unsigned workers, size_t places) const;
  // As many threads as there are, on as many tensors as there is memory for;
  // nothing where more than one are not worth it.
  std::optional<ThreadPlan> ThreadsOf(const Threads& threads) const;
  // The report of an artefact of so many bytes. Once, at the end.
  DecompressReport TakeReport(uint64_t compressed_size);
  // DATA_LOSS for an artefact that ends `missing` bytes before the end of the
  // payload of a tensor.
  absl::Status CutShort(size_t tensor, uint64_t missing, uint64_t size) const;

  ArtefactHeader header;
  uint64_t header_size = 0;  // bytes in the artefact
  GroupDecompression groups;

  bool verify_only = false;
  // Nothing where all tokens of what is selected are given back.
  std::optional<TokenRange> tokens;
  std::vector<bool> selected;   // by tensor of the header
  std::vector<Source> sources;  // in the order in which they are given back
  std::map<size_t, Layout> narrowed;  // by index into header.laid_out
  std::string output_header;          // of the restored file

  // The most bytes of any tensor: what its decoder holds; a block that it
  // decodes; what is decoded aside; a slab of its layout that is given back;
  // its payload; that with what is given back of it.
  uint64_t decoder_memory = 0;
  uint64_t block_memory = 0;
  uint64_t aside_memory = 0;
  uint64_t slab_memory = 0;
  uint64_t payload_memory = 0;
  uint64_t tensor_memory = 0;

  // As far as the header shows.
  DecompressReport report;

 private:
  std::vector<Source> SourcesOfHeader() const;
  absl::Status Select(const std::vector<std::string>& patterns);
  bool HasAllTokens() const;
  absl::Status Measure(size_t tensor, const DecompressLimits& limits);
  absl::Status Narrow(const Source& source, const DecompressLimits& limits);
  absl::Status Place(const DecompressLimits& limits, Checkpoint* checkpoint);
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PLAN_DECOMPRESS_PLAN_H_
