// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Decodes tensors whose payloads come in the order of the artefact, by one
// thread and in steps. Where tensors are given back in another order, or need
// the payload of a group, payloads wait for their turn. Internal to the
// library.

#ifndef KVCOMPRESS_RUN_ARRIVING_STEPS_H_
#define KVCOMPRESS_RUN_ARRIVING_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "digest/digest.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "pipeline/groups.h"
#include "pipeline/selection.h"
#include "plan/decompress_plan.h"
#include "run/restored_output.h"

namespace kvcompress {

// Not thread safe.
class ArrivingSteps {
 public:
  // All outlive this; `order` has the tensors as they are given back.
  ArrivingSteps(const DecompressPlan& plan, const std::vector<size_t>& order,
                RestoredOutput* output)
      : plan_(plan), order_(order), output_(*output) {}

  // Once the plan is made. With `turns`, tensors wait for theirs. The
  // checkpoint may be null, or outlives this.
  absl::Status Begin(bool turns, Checkpoint* checkpoint);

  enum class Progress {
    kNone,  // more bytes are needed
    kSome,
    kFull,  // there is no more room in what is restored
  };
  // Decodes bytes of payloads from the front of `*bytes`, which are at
  // `*position` of the artefact, to the output or, until it has `most` bytes,
  // to `*restored`. Adds to `*work` the bytes that were decoded elsewhere.
  // REQUIRES: not done.
  absl::StatusOr<Progress> Step(absl::string_view* bytes, uint64_t* position,
                                size_t most, std::string* restored,
                                uint64_t* work);

  // Whether all tensors are decoded.
  bool done() const { return index_ == order_.size(); }
  // The tensor whose payload comes next, and bytes of it that are missing.
  size_t next() const { return turns_ ? collected_ : index_; }
  uint64_t missing() const;

 private:
  const ArtefactTensor& Current() const {
    return plan_.header.tensors[order_[index_]];
  }
  absl::Status Start();
  absl::StatusOr<bool> TakeTurn(absl::string_view* bytes, uint64_t* position);
  absl::Status NewDecoder(size_t tensor);
  void NeedWhatIsSelected();
  absl::StatusOr<bool> DecodePayload(absl::string_view* bytes, size_t most,
                                     std::string* decoded);
  absl::StatusOr<bool> DecodeAside(absl::string_view* bytes, size_t most,
                                   uint64_t* work);
  absl::Status Finish();

  const DecompressPlan& plan_;
  const std::vector<size_t>& order_;
  RestoredOutput& output_;
  Checkpoint* checkpoint_ = nullptr;

  // The tensor, or view, that is being decoded: its place in order_.
  size_t index_ = 0;
  uint64_t remaining_ = 0;  // bytes of its payload still to come
  std::unique_ptr<TensorDecoder> decoder_;
  std::optional<TokenFilter> filter_;
  Digest digest_;
  std::string scratch_;
  std::string kept_;  // of a view, where a range of tokens is given back

  bool turns_ = false;
  size_t collected_ = 0;           // tensors whose payload has come
  std::vector<std::string> held_;  // by tensor: what was decoded is empty
  absl::string_view due_;          // what is left of the current tensor's
  std::map<size_t, size_t> members_left_;  // of groups, before their turn
  std::map<size_t, std::shared_ptr<const profile::GroupQuanta>> quanta_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_RUN_ARRIVING_STEPS_H_
