// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A tensor, or a view of one, that is decoded as a job among others, pieces of
// one, and the payload of a group. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_TENSOR_DECODING_H_
#define KVCOMPRESS_PIPELINE_TENSOR_DECODING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "pipeline/groups.h"
#include "pipeline/job_queue.h"
#include "pipeline/selection.h"
#include "pipeline/spare_strings.h"
#include "profile/group_decoder.h"

namespace kvcompress {

// DATA_LOSS: the digest of the payload at `offset` is not the manifest's.
absl::Status DigestMismatch(const ArtefactTensor& tensor, uint64_t offset);

// Whether a payload has the digest of its tensor, or the checkpoint, which may
// be null, stops.
bool HasDigest(const ArtefactTensor& tensor, absl::string_view payload,
               Checkpoint* checkpoint);

// Space for what is decoded in steps. A block that is larger comes once there
// is space for it.
class StepRoom {
 public:
  // So many bytes, as long as no block is larger.
  explicit StepRoom(size_t usual) : usual_(usual), room_(usual) {}

  size_t bytes() const { return room_; }
  // After a step: whether it took or returned anything.
  void Step(bool moved) {
    room_ = moved ? usual_ : std::min<size_t>(2 * room_, kMaxDecodedBlock);
  }

 private:
  const size_t usual_;
  size_t room_;
};

// Reads the payload of a group of a profile, which its members are decoded by.
class GroupJob final : public Job {
 public:
  // Returns the payload, which is somebody else's or read to `*buffer`.
  using Read =
      std::function<absl::StatusOr<absl::string_view>(std::string* buffer)>;

  // So many threads of `queue` share the work. What is given here outlives this
  // or, where `payload` and `still_wanted` are concerned, the run of it.
  GroupJob(const GroupDecompression* groups, size_t group, Read payload,
           StillWanted still_wanted, JobQueue* queue, unsigned threads)
      : groups_(groups),
        group_(group),
        payload_(std::move(payload)),
        still_wanted_(std::move(still_wanted)),
        queue_(queue),
        threads_(threads) {}

  // Once it is done: the decoder of a member, or why there is none; see
  // GroupDecompression::NewDecoder. Thread safe.
  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      size_t tensor, Checkpoint* checkpoint) const;

 private:
  void Run() override;

  const GroupDecompression* const groups_;
  const size_t group_;
  const Read payload_;
  const StillWanted still_wanted_;
  JobQueue* const queue_;
  const unsigned threads_;
  absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>> quanta_;
};

// The decoder of a tensor or, where that is in a group, of the member with this
// index. Without a job for its group a member returns nothing. `group` may be
// null, as the checkpoint.
absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoderOf(
    const ArtefactTensor& tensor, const GroupJob* group, size_t index,
    Checkpoint* checkpoint);

class DecodeJob final : public Job {
 public:
  enum class Use {
    kGiveBack,   // whole, or in pieces
    kGiveWhole,  // at once, if not only some of the tokens are kept
    kCheck,      // all of it is decoded, and nothing kept
    kSkip,       // only the digest matters
  };

  // Decodes `tensor`, whose payload is at `offset` of the artefact; of it only
  // `tokens` are kept, if there are any. `tensor`, `spares` and `queue`
  // outlive this.
  DecodeJob(const ArtefactTensor& tensor, uint64_t offset, Use use,
            std::optional<TokenRange> tokens, StillWanted still_wanted,
            SpareStrings* spares, JobQueue* queue);

  // Takes payload, before the job is added. Returns what is still missing of
  // it.
  uint64_t Append(absl::string_view bytes) {
    payload_.append(bytes.data(), bytes.size());
    return tensor_.payload_size - payload_.size();
  }

  // That payload, until the job has run or, where it comes in pieces, until
  // Release.
  absl::string_view payload() const { return payload_; }

  // Makes it decode the tensor, by its index, from what another job, which was
  // added before, makes of its group. To be called before it is added.
  void DecodeBy(std::shared_ptr<GroupJob> group, size_t tensor) {
    RunAfter(group);
    group_ = std::move(group);
    index_ = tensor;
  }

  // Of a job that is done.
  const absl::Status& status() const { return status_; }
  // What is given back, which the caller may take.
  std::string& decoded() { return decoded_; }
  // Of how many pieces that consists, each of which is a job of its own to
  // decode; 0 where it is in decoded(). Only where all of it is given back.
  size_t pieces() const { return pieces_; }
  // Once all pieces are decoded.
  void Release() { spares_->taken.PutBack(&payload_); }

 private:
  friend class PieceJob;

  void Run() override;
  absl::Status Decode(Checkpoint* checkpoint);
  bool gives() const {
    return use_ == Use::kGiveBack || use_ == Use::kGiveWhole;
  }
  // Cuts it into pieces, or decodes all of it by several threads, where one of
  // these is for this payload, and it has its digest. Else false, and there is
  // only space for what it becomes.
  absl::StatusOr<bool> DecodeByMany(TensorDecoder* decoder,
                                    Checkpoint* checkpoint);

  const ArtefactTensor& tensor_;
  const uint64_t offset_;
  const Use use_;
  const std::optional<TokenRange> tokens_;
  const StillWanted still_wanted_;
  SpareStrings* const spares_;  // of the payload, and of what it becomes
  JobQueue* const queue_;
  std::shared_ptr<GroupJob> group_;  // null for a tensor of no group
  size_t index_ = 0;                 // of the tensor, where it is in one
  std::string payload_;
  absl::Status status_;
  std::string decoded_;
  std::unique_ptr<TensorDecoder> decoder_;  // of pieces
  size_t pieces_ = 0;
};

// Decodes a piece of a tensor, whose own job is done: what a processor still
// has in its caches when another one takes it.
class PieceJob final : public Job {
 public:
  PieceJob(std::shared_ptr<DecodeJob> tensor, size_t index)
      : tensor_(std::move(tensor)), index_(index) {}

  bool is_last() const { return index_ + 1 == tensor_->pieces(); }

  // Of a job that is done; see DecodeJob.
  const absl::Status& status() const { return status_; }
  std::string& decoded() { return decoded_; }

 private:
  void Run() override;

  const std::shared_ptr<DecodeJob> tensor_;
  const size_t index_;
  absl::Status status_;
  std::string decoded_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_TENSOR_DECODING_H_
