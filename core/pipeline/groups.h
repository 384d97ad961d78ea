// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Tensors that are coded together, with a profile, in whatever order a file has
// them: the last of a group carries its payload, and the others' are empty.
// Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_GROUPS_H_
#define KVCOMPRESS_PIPELINE_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/artefact.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/metrics.h"
#include "kvcompress/profile.h"
#include "pipeline/group_alone.h"
#include "pipeline/group_fit.h"
#include "pipeline/group_members.h"
#include "profile/group_decoder.h"
#include "profile/group_encoder.h"
#include "profile/group_format.h"
#include "tensor/workers.h"

namespace kvcompress {

// The encoding side. Not thread safe.
class GroupCompression {
 public:
  // What became of a member when its group was encoded.
  struct Outcome {
    size_t tensor = 0;
    MemberQuality quality;
    // Of `auto` where the group is not coded with the profile.
    std::optional<AloneTensor> alone;
  };

  GroupCompression() = default;

  // Finds the groups of the profile in `options` among the tensors, and makes
  // klt-profile or lossless-profile their codec, for `auto` until TakeOutcomes
  // says otherwise; nothing without a profile. INVALID_ARGUMENT where profile
  // and codec do not go together, or no group fits. Without a profile there,
  // chooses among the candidates. Writes to the report which is used. The cache
  // begins at the position that is declared, else at one to be found.
  static absl::StatusOr<GroupCompression> Plan(const CompressOptions& options,
                                               const CodecSpec& codec,
                                               std::optional<uint64_t> declared,
                                               ArtefactHeader* header,
                                               CompressReport* report);

  bool Has(size_t tensor) const { return group_of_.count(tensor) != 0; }

  // Whether a group may be smaller without the profile: then the payloads of
  // its members come with TakeOutcomes.
  bool may_fall_back() const { return falls_back_; }

  // Bytes by which the reserved header must grow, for other codecs, and may
  // shrink, for what tensors that surely have no payload do not need.
  uint64_t HeaderGrowth() const;
  uint64_t HeaderSavings() const;

  // Whether a tensor is the last of its group. REQUIRES: Has(tensor).
  bool IsLast(size_t tensor) const {
    return groups_[group_of_.at(tensor)].last == tensor;
  }

  // The group of the profile that a tensor is in, if it is in one.
  std::optional<uint32_t> GroupOf(size_t tensor) const;

  // Whether there are any groups.
  bool any() const { return !groups_.empty(); }

  // The most that it holds at once, in bytes, where so many threads share the
  // work of a group: source, a group that is encoded and, with `reconstruct`,
  // output that is not due.
  uint64_t memory(bool reconstruct, size_t places) const;

  // Takes the bytes of a member. That of the last of a group returns the
  // group's payload when it ends, by the workers of `hints`; none returns
  // decoded bytes. REQUIRES: Has(tensor); this outlives the encoder.
  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      size_t tensor, const TensorSpec& spec, const EncodeHints& hints);

  // After the end of a tensor: where a group ended with it, decodes and
  // measures its members, which workers share. `decoded` takes the bytes of
  // each, of one at a time but in any order and by any thread, and may be null.
  // Outcomes are in the order of the profile.
  absl::Status TakeOutcomes(
      size_t tensor, Workers* workers, Checkpoint* checkpoint,
      const std::function<void(size_t tensor, absl::string_view bytes)>&
          decoded,
      std::vector<Outcome>* outcomes);

  // Adds start position, key fit and pending warnings of finished groups to the
  // report.
  void TellOfPosition(CompressReport* report);

 private:
  // Sets up the groups of a profile with a preset of it.
  void Use(FittingProfile fitting, ArtefactHeader* header,
           CompressReport* report);
  // That of tensors that are coded with the profile.
  const Codec& codec() const;
  absl::Status Encode(const TensorGroup& group, Workers* workers,
                      Checkpoint* checkpoint, std::string* payload);
  // The same where the members of a group may be coded by `auto`, or by
  // `lossless`, each.
  absl::Status EncodeSmallest(const TensorGroup& group, Workers* workers,
                              Checkpoint* checkpoint);
  profile::GroupEncoding EncodingOf(const TensorGroup& group,
                                    absl::Span<const absl::string_view> sources,
                                    Workers* workers, Checkpoint* checkpoint);
  absl::StatusOr<bool> EncodeContract(const TensorGroup& group,
                                      profile::GroupEncoding encoding,
                                      Workers* workers, Checkpoint* checkpoint,
                                      std::string* payload);
  // As Encode, but that every bit is kept.
  absl::Status EncodeExact(const TensorGroup& group, Workers* workers,
                           Checkpoint* checkpoint, std::string* payload);
  // Takes note of the size of a group, and after the last one of an unusual
  // cache.
  void CompareRate(const TensorGroup& group, uint64_t size);
  std::vector<absl::string_view> SourcesOf(const TensorGroup& group) const;
  // Where the cache begins, as the keys of the group have it. Sets fits_.
  uint64_t PositionOf(const TensorGroup& group,
                      absl::Span<const absl::string_view> sources,
                      Checkpoint* checkpoint);
  std::vector<TensorSpec> specs_;  // of all tensors
  bool falls_back_ = false;
  CodecSpec alone_codec_;  // of what falls back
  bool exact_ = false;     // lossless
  Effort effort_ = Effort::kBalanced;
  uint32_t block_tokens_ = kMaxBlockTokens;
  std::map<size_t, EncodeHints> hints_;  // by tensor; of members
  std::shared_ptr<const Profile> profile_;
  size_t preset_ = 0;
  std::optional<uint64_t> declared_;  // position of the first token
  std::optional<uint64_t> found_;     // that of the group that ended last
  bool fits_ = true;                  // the group that ended last
  std::optional<double> least_fit_;   // of those whose fit is known
  // The first of a kind, which is reported once.
  struct Told {
    std::optional<Warning> warning;
    bool told = false;
  };
  Told poor_fit_;
  Told poor_rate_;
  Told unusual_;
  Told trained_on_;
  size_t coded_groups_ = 0;  // with a preset that is not `contract`
  uint64_t coded_values_ = 0;
  uint64_t coded_bytes_ = 0;
  std::vector<TensorGroup> groups_;
  std::map<size_t, size_t> group_of_;      // index of groups_ by tensor
  std::map<size_t, std::string> sources_;  // by tensor
  std::set<size_t> not_finite_;            // tensors, which have no profile
  std::string payload_;                    // of the group that ended last
  absl::Status status_;                    // of its encoding
  std::vector<AloneTensor> alone_;         // its members, where that is smaller
};

// The decoding side: which tensors are groups. Immutable once planned.
class GroupDecompression {
 public:
  GroupDecompression() = default;

  // Finds the groups of an artefact. FAILED_PRECONDITION with reason
  // PROFILE_MISSING where it needs a profile that is not among these,
  // DATA_LOSS where tensors do not make up groups of theirs.
  static absl::StatusOr<GroupDecompression> Plan(
      absl::Span<const std::shared_ptr<const Profile>> profiles,
      const ArtefactHeader& header);

  bool empty() const { return groups_.empty(); }
  bool Has(size_t tensor) const { return group_of_.count(tensor) != 0; }

  // The profile that is needed, if one is.
  std::optional<ProfileUse> use() const {
    if (profile_ == nullptr) return std::nullopt;
    return ProfileUse{.id = profile_->id(), .tensors = group_of_.size()};
  }

  // What the quanta of all groups take at most, in bytes.
  uint64_t memory() const { return memory_; }
  // What a thread takes that reads a group beside others, in bytes; none where
  // there are no groups.
  uint64_t memory_of_reader() const { return memory_of_reader_; }
  // What the decoder of a member takes, in bytes. REQUIRES: Has(tensor), as for
  // all that follows.
  uint64_t MemoryOfDecoder(size_t tensor) const;

  // A group by its number, which is below the number of tensors, and its
  // tensors. The last of these in the file has the payload, and there is none
  // to decode before it has come.
  size_t GroupOf(size_t tensor) const { return group_of_.at(tensor); }
  absl::Span<const size_t> MembersOf(size_t group) const {
    return groups_[group].members;
  }
  size_t LastOf(size_t group) const { return groups_[group].last; }

  // Reads the payload of a group, which is not trusted: DATA_LOSS, naming the
  // last of its tensors. The status of the checkpoint, which may be null, when
  // that stops. The workers, which may be null, share the work.
  absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>> Parse(
      size_t group, absl::string_view payload, Checkpoint* checkpoint,
      Workers* workers) const;

  // Decodes a member's elements from the quanta of its group, and takes its
  // payload, which is read. The checkpoint may be null and is asked every few
  // milliseconds; it outlives the decoder.
  std::unique_ptr<TensorDecoder> NewDecoder(
      size_t tensor, std::shared_ptr<const profile::GroupQuanta> quanta,
      Checkpoint* checkpoint) const;

 private:
  // Where a tensor is in its group.
  size_t PlaceOf(size_t tensor) const;

  std::shared_ptr<const Profile> profile_;
  std::vector<TensorGroup> groups_;
  std::vector<std::string> names_;  // of all tensors
  std::map<size_t, size_t> group_of_;
  uint64_t memory_ = 0;
  uint64_t memory_of_reader_ = 0;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GROUPS_H_
