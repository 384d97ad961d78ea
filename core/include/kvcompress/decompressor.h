// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// An artefact in, the restored safetensors file out, in one pass and in bounded
// memory, with every checksum verified. What comes out is provisional until
// Finish says that all of it is good.
//
//   bool more = true;
//   for (absl::string_view bytes = chunk; more; out.clear()) {
//     ASSIGN_OR_RETURN(more, decompressor.Restore(&bytes, 1 << 20, &out));
//     Send(out);
//   }
//
// Not thread safe. After an error only destruction is allowed.

#ifndef KVCOMPRESS_DECOMPRESSOR_H_
#define KVCOMPRESS_DECOMPRESSOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/patterns.h"
#include "kvcompress/profile.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/threads.h"

namespace kvcompress {

// In which order tensors are given back.
enum class TensorOrder {
  kFile,    // that of the source
  kLayers,  // by layer, its keys before its values; what is of no layer last
};

struct DecompressOptions {
  // Labels that the artefact must carry with these values.
  Labels expected_labels;
  // The checksum it must have; empty for any.
  std::string expected_payload_digest;
  // Shell patterns, see kvcompress/patterns.h, each of which matches a tensor;
  // a tensor is given back when one of them matches, or when there is none.
  std::vector<std::string> tensors;
  // Half-open range of tokens to return of [batch, heads, tokens, head_dim],
  // and of tensors in a layout; whole pages where tokens are in pages.
  std::optional<std::pair<uint64_t, uint64_t>> tokens;
  // The first layers can be used while the last are decoded. A tensor that
  // comes before its turn waits, compressed.
  TensorOrder order = TensorOrder::kFile;
  // Whether to check only and return nothing.
  bool verify_only = false;
  // Those that artefacts may need.
  std::vector<std::shared_ptr<const Profile>> profiles;
};

struct DecompressLimits {
  // Longest header taken, in bytes; at most kMaxSafetensorsHeader.
  uint64_t max_header_bytes = kMaxSafetensorsHeader;
  // Largest tensor of a codec whose decoder holds it whole, and the most that
  // is held of a tensor in a layout, in bytes.
  uint64_t max_tensor_bytes = UINT64_MAX;
  // Asked while several threads work, by each of them; an error is what the
  // step under way returns. Null: it always is. Thread safe.
  StillWanted still_wanted;
  // What works on tensors; see working_bytes().
  Threads threads;
};

// See kvcompress.v1.DecompressionReport.
struct DecompressReport {
  int format_version = 0;
  uint64_t compressed_size = 0;  // bytes of the artefact
  uint64_t original_size = 0;    // bytes of tensor data it decodes to
  uint64_t output_size = 0;      // bytes given back
  uint64_t elements = 0;
  double compression_ratio = 0;  // 2 * elements / compressed_size
  uint64_t tensor_count = 0;
  uint64_t tensors_selected = 0;
  // Bytes of tensor data by the name of the codec that they were decoded by.
  std::map<std::string, uint64_t> decoded_bytes;
  Labels labels;
  std::string payload_digest;
  std::optional<ProfileUse> profile;  // that it needs
};

class Decompressor {
 public:
  Decompressor(DecompressOptions options, DecompressLimits limits);
  ~Decompressor();

  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // A step: takes bytes of the artefact, cut anywhere, from the front of
  // `*bytes`, and appends to `*restored` the next bytes of the safetensors
  // file. `*restored` never grows beyond `most` bytes. One exception: if it is
  // empty, a step may append one larger block, of at most kMaxDecodedBlock
  // bytes. The same limit holds for bytes that a step decodes and does not
  // return. With several threads, a step may wait for a tensor.
  //
  // True when it stopped for that, and once when it has read the header, before
  // it decodes anything, so that working_bytes() can be reserved: call it
  // again, with what `*bytes` still has, which may be nothing, and with space
  // in `*restored`. False when it needs more bytes: `*bytes` is empty, and all
  // that came of it was given. DATA_LOSS for damage or an unexpected identity,
  // INVALID_ARGUMENT for a selection that the artefact does not have, and the
  // codes of ParseArtefactHeader. REQUIRES: most > 0.
  absl::StatusOr<bool> Restore(absl::string_view* bytes, size_t most,
                               std::string* restored);

  // The most that this holds between two steps, besides what is passed in and
  // out, in bytes: the header, parsed; and, once that is read, what the
  // decoder of any of its tensors holds (DecoderBounds), what is decoded to be
  // left out, and the largest part of a tensor in a layout that has whole
  // views. Where tensors are in groups of a profile, or come in another order
  // than they are given back, payloads wait, all of them at most. Where more
  // threads than one work, each also has two tensors.
  uint64_t working_bytes() const;

  // How many threads work at a time at most, once the header was read: as many
  // as there are tensors, threads, and memory for them.
  unsigned threads() const;
  // From now on works alone. Before a step after that which read the header.
  void UseOneThread();

  // Ends the input. DATA_LOSS when it is cut short. REQUIRES: the last call of
  // Restore, if there was one, returned false.
  absl::StatusOr<DecompressReport> Finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Restores all of an artefact that is in memory, with the checks and errors of
// Decompressor: the whole safetensors file.
absl::StatusOr<std::string> RestoreWhole(absl::string_view artefact);

}  // namespace kvcompress

#endif  // KVCOMPRESS_DECOMPRESSOR_H_
