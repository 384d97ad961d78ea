// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Artefacts in files and memory, where any byte can be read and written at any
// time: the threads that decode read their payloads and write their tensors
// themselves. No thread copies what others have made, and no tensor waits for
// its turn.
//
//   MemorySource source(artefact);
//   PlacedDecompressor decompressor(options, limits);
//   RETURN_IF_ERROR(decompressor.Open(&source));
//   std::string restored(decompressor.output_size(), '\0');
//   MemorySink sink(absl::MakeSpan(restored));
//   for (bool more = true; more;) {
//     ASSIGN_OR_RETURN(more, decompressor.Restore(&sink, absl::Seconds(1)));
//   }
//   ASSIGN_OR_RETURN(report, decompressor.Finish());

#ifndef KVCOMPRESS_PLACED_DECOMPRESSOR_H_
#define KVCOMPRESS_PLACED_DECOMPRESSOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/places.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// Restores an artefact as Decompressor does: the same bytes, checks and
// reports. What was written is provisional until Finish says that all of it is
// good. Not thread safe. After an error only destruction is allowed.
class PlacedDecompressor {
 public:
  // A tensor that is given back, and its bytes in the restored file.
  struct Place {
    TensorSpec spec;
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  PlacedDecompressor(DecompressOptions options, DecompressLimits limits);
  ~PlacedDecompressor();

  PlacedDecompressor(const PlacedDecompressor&) = delete;
  PlacedDecompressor& operator=(const PlacedDecompressor&) = delete;

  // The most that Open holds, in bytes, by the length that the header has or
  // says it has.
  absl::StatusOr<uint64_t> OpeningBytes(const PlacedSource& artefact) const;

  // Reads the header of an artefact, which outlives this. The errors of
  // Decompressor::Restore that a header can cause, and DATA_LOSS where the
  // artefact is not as long as its header says. Once, before all that follows.
  absl::Status Open(const PlacedSource* artefact);

  // Bytes of the restored file; 0 where nothing is given back.
  uint64_t output_size() const;
  // The tensors in it, in its order.
  absl::StatusOr<std::vector<Place>> Places() const;

  // The most that this holds, in bytes; see Decompressor::working_bytes.
  uint64_t working_bytes() const;
  // See Decompressor. UseOneThread is to be called before Restore.
  unsigned threads() const;
  void UseOneThread();

  // Restores tensors for about so long, or until all are; true when there are
  // more. `sink` is the same for all calls and outlives this. Errors of the
  // sink, of the source, and of Decompressor::Restore: that of the first tensor
  // in the order of the output.
  absl::StatusOr<bool> Restore(PlacedSink* sink, absl::Duration most);

  // How many bytes of the artefact were restored so far.
  uint64_t done_bytes() const;

  // REQUIRES: the last call of Restore returned false.
  absl::StatusOr<DecompressReport> Finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PLACED_DECOMPRESSOR_H_
