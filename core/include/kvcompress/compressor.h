// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A cache in, an artefact and its measured quality out, in one pass and in
// bounded memory. The server, the embedded default and the tests all compress
// through this class.
//
//   Compressor compressor(options, limits);
//   CompressOutput out;
//   while (...) {
//     RETURN_IF_ERROR(compressor.Append(chunk, &out));
//     // use and clear out.artefact; it continues at offset
//     // reserved_header_size() onwards. Or see WriteTo.
//   }
//   ASSIGN_OR_RETURN(CompressReport report, compressor.Finish());
//   // compressor.header() now belongs at offset 0
//
// Not thread safe. After an error only destruction is allowed.

#ifndef KVCOMPRESS_COMPRESSOR_H_
#define KVCOMPRESS_COMPRESSOR_H_

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
#include "absl/time/time.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/metrics.h"
#include "kvcompress/places.h"
#include "kvcompress/profile.h"
#include "kvcompress/quality.h"
#include "kvcompress/roles.h"
#include "kvcompress/rope.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/tensor.h"
#include "kvcompress/threads.h"
#include "kvcompress/warning.h"

namespace kvcompress {

struct CompressOptions {
  // A codec string; see kvcompress/codec.h.
  std::string codec = "int4";
  // For tensors without thresholds of their role, and for the whole.
  QualityThresholds thresholds;
  std::optional<QualityThresholds> key_thresholds;
  std::optional<QualityThresholds> value_thresholds;
  // Which tensors hold keys and values, where their names do not say it.
  RolePatterns roles;
  Labels labels;
  // Whether to return the file that decompression would produce.
  bool reconstruct = false;
  // Base of the rotary position embedding, for codecs that undo it; 0 for none.
  // Taken from the metadata key "rope_theta" of the input when not set.
  std::optional<double> rope_theta;
  // All that is known of that embedding; not together with `rope_theta`.
  std::optional<RopeParameters> rope;
  Effort effort = Effort::kBalanced;
  // Tokens of a block of what a profile codes, kLeastBlockTokens to
  // kMaxBlockTokens; decoders work on whole blocks.
  uint32_t block_tokens = kMaxBlockTokens;
  // With kBasic the metrics that need tokens are not known, nor layouts looked
  // at for suspicions; a threshold of such a metric is INVALID_ARGUMENT.
  MetricsLevel metrics = MetricsLevel::kFull;
  // Layout of the tensors of numbers that do not declare their own; see
  // core/FORMAT.md, "Layouts". Taken from the metadata key "layout" of the
  // input when empty.
  std::string layout;
  // EncodeHints::attention of the tensors of a layer.
  std::map<uint32_t, std::vector<float>> attention;
  // With the codec klt and a preset of this profile, or with lossless: groups
  // of it that the cache has whole are coded with it, all other tensors with
  // the codec alone. lossless takes groups of F16 and BF16, and the preset
  // `contract` or else the one with the smallest step. The
  // cache begins at the position that the metadata key "first_token" of the
  // input says, else at one that is found from the keys. Where these are not
  // like the keys of the training the report has the warning PROFILE_POOR_FIT,
  // and PROFILE_POOR_RATE where bounds take more than without a profile.
  // Null for none.
  std::shared_ptr<const Profile> profile;
  // If `profile` is null: the profiles to choose from. One fits if it has the
  // preset of the codec klt and the cache has one of its groups. If exactly one
  // fits, it is used. If several fit, none is used, and the report has the
  // warning PROFILE_AMBIGUOUS. If none fits, or the other options exclude a
  // profile, none is used.
  std::vector<std::shared_ptr<const Profile>> candidate_profiles;
};

struct CompressLimits {
  // Longest safetensors header taken, in bytes; at most kMaxSafetensorsHeader.
  uint64_t max_header_bytes = kMaxSafetensorsHeader;
  // Largest tensor taken by a codec that holds a whole tensor, in bytes.
  uint64_t max_tensor_bytes = uint64_t{1} << 30;
  // Asked while it works; an error is what the call under way returns. Null: it
  // always is. Thread safe where there are more threads than one.
  StillWanted still_wanted;
  // What works on tensors; see working_bytes().
  Threads threads;
};

// Bytes produced so far and not yet taken away; the caller clears them.
struct CompressOutput {
  // Payload bytes, in order, from the end of the reserved header.
  std::string artefact;
  // The reconstructed safetensors file from its first byte; empty unless asked
  // for.
  std::string reconstructed;
};

// One tensor, or one view of a tensor in a layout; see
// kvcompress.v1.TensorReport.
struct TensorReport {
  TensorSpec spec;
  std::string codec;
  uint64_t original_size = 0;    // bytes
  uint64_t compressed_size = 0;  // bytes of payload
  Metrics metrics;
  QualityVerdict verdict;
  std::string digest;
  // The rotary position embedding that was removed before coding.
  std::optional<RopeFinding> rope;
  // The group of the profile that it was coded in. The payload of a group
  // counts for its last tensor.
  std::optional<uint32_t> profile_group;
};

// The whole cache; see kvcompress.v1.CompressionReport.
struct CompressReport {
  std::string codec;
  uint64_t original_size = 0;    // bytes of tensor data
  uint64_t compressed_size = 0;  // bytes of the artefact, header included
  uint64_t elements = 0;
  double compression_ratio = 0;  // 2 * elements / compressed_size
  double bits_per_value = 0;     // 8 * compressed_size / elements, 0 when empty
  Metrics metrics;               // pooled, of the tensors of numbers
  QualityVerdict verdict;        // on the pooled metrics
  uint64_t tensors_failed = 0;   // tensors whose own verdict did not pass
  std::vector<TensorReport> tensors;
  // Index of the key with the lowest centred SNR, or of the tensor with the
  // lowest SNR where no key has one; -1 when every tensor is exact.
  int64_t worst_tensor = -1;
  std::string payload_digest;
  RoleCounts roles;
  std::vector<Warning> warnings;
  std::optional<ProfileUse> profile;  // that was used
};

class Compressor {
 public:
  // Options are checked by the first call that takes input.
  Compressor(CompressOptions options, CompressLimits limits);
  ~Compressor();

  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  // Checks the options alone. INVALID_ARGUMENT.
  absl::Status ValidateOptions() const;

  // Takes the next bytes of a safetensors file, cut anywhere. Output grows by
  // at most the decoded and encoded size of `bytes` and one block or, for
  // codecs that are not streaming and tensors in a layout, one tensor; with
  // several threads, two tensors for each.
  // INVALID_ARGUMENT for a broken rule, FAILED_PRECONDITION for an input that
  // is already compressed, OUT_OF_RANGE past a limit.
  absl::Status Append(absl::string_view bytes, CompressOutput* output);

  // Instead, takes a file, or the data of declared tensors, from where it lies:
  // every call is given the same one, which outlives this, and works for about
  // so long, or until there is output.
  // True when it has read some of the header, so that working_bytes() can be
  // reserved, and when there is more; false when all of the file was taken.
  // Threads read the tensors that they encode themselves.
  absl::StatusOr<bool> AppendFrom(const PlacedSource& file, absl::Duration most,
                                  CompressOutput* output);

  // From now on the threads that work write payloads to where they belong in
  // the artefact, instead of giving them in outputs: 512 KiB or more at a time,
  // and all of them before the call that takes the last byte returns. Before
  // any input. The sink outlives this, and its errors are those of the calls.
  void WriteTo(PlacedSink* artefact);

  // Instead of a file: declares the tensors, once and before any data...
  // `data` has their bytes, one tensor after the other, where AppendFrom takes
  // these; else null.
  absl::Status DeclareTensors(
      const std::vector<TensorSpec>& tensors,
      std::vector<std::pair<std::string, std::string>> metadata,
      CompressOutput* output, const PlacedSource* data = nullptr);
  // ...and takes their bytes in order. `tensor` names the tensor that is due,
  // or is empty.
  absl::Status AppendTensor(absl::string_view tensor, absl::string_view bytes,
                            CompressOutput* output);

  // Ends the input. INVALID_ARGUMENT when it is incomplete.
  absl::StatusOr<CompressReport> Finish();

  // Bytes of the input that were taken.
  uint64_t taken_bytes() const;
  // Whether the input's header is complete; then the next three are known.
  bool begun() const;
  uint64_t reserved_header_size() const;  // bytes
  uint64_t original_size() const;         // bytes of tensor data
  // Of tensors and, for tensors in a layout, of views.
  uint64_t tensor_count() const;
  // "int4:64".
  const std::string& codec() const;
  // The profile that is used, once begun; null for none.
  const ProfileId* profile() const;

  // How many threads work at a time at most, once begun: as many as there are
  // tensors, threads, and memory for them.
  unsigned threads() const;
  // From now on works alone. Before any data.
  void UseOneThread();

  // About how much memory this needs for the input's header, when `next` more
  // bytes of a file are taken, and, once begun, for the largest tensor where
  // the codec or its layout holds a whole one, or of several where more threads
  // than one work, in bytes; besides what is passed in and out.
  uint64_t working_bytes(uint64_t next = 0) const;

  // The header of the artefact, reserved_header_size() bytes, after Finish.
  const std::string& header() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_COMPRESSOR_H_
