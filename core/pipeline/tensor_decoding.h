// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A tensor, or a view of one, that is decoded as a job among others. Internal
// to the library.

#ifndef KVCOMPRESS_PIPELINE_TENSOR_DECODING_H_
#define KVCOMPRESS_PIPELINE_TENSOR_DECODING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/artefact.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "pipeline/job_queue.h"
#include "pipeline/selection.h"
#include "pipeline/spare_strings.h"

namespace kvcompress {

// DATA_LOSS: the digest of the payload at `offset` is not the manifest's.
absl::Status DigestMismatch(const ArtefactTensor& tensor, uint64_t offset);

class DecodeJob final : public Job {
 public:
  enum class Use {
    kGiveBack,
    kCheck,  // all of it is decoded, and nothing kept
    kSkip,   // only the digest matters
  };

  // Decodes `tensor`, whose payload is at `offset` of the artefact; of it only
  // `tokens` are kept, if there are any. `tensor`, `spares` and `queue`
  // outlive this.
  DecodeJob(const ArtefactTensor& tensor, uint64_t offset, Use use,
            std::optional<TokenRange> tokens, StillWanted still_wanted,
            SpareStrings* spares, JobQueue* queue);

  // Takes payload, before the job is added. Gives what is still missing of it.
  uint64_t Append(absl::string_view bytes) {
    payload_.append(bytes.data(), bytes.size());
    return tensor_.payload_size - payload_.size();
  }

  // Of a job that is done.
  const absl::Status& status() const { return status_; }
  // What is given back, which the caller may take.
  std::string& decoded() { return decoded_; }

 private:
  void Run() override;
  absl::Status Decode(Checkpoint* checkpoint);
  // Decodes all of it by several threads, where that is for this payload, and
  // it is whole; else false, and nothing has happened.
  absl::StatusOr<bool> DecodeByMany(TensorDecoder* decoder,
                                    Checkpoint* checkpoint);

  const ArtefactTensor& tensor_;
  const uint64_t offset_;
  const Use use_;
  const std::optional<TokenRange> tokens_;
  const StillWanted still_wanted_;
  SpareStrings* const spares_;  // of the payload, and of what it becomes
  JobQueue* const queue_;
  std::string payload_;
  absl::Status status_;
  std::string decoded_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_TENSOR_DECODING_H_
