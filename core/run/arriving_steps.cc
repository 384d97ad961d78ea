// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "run/arriving_steps.h"

#include <algorithm>
#include <utility>

#include "pipeline/group_members.h"
#include "pipeline/tensor_decoding.h"
#include "status/macros.h"
#include "tensor/grow.h"

namespace kvcompress {

absl::Status ArrivingSteps::Begin(bool turns, Checkpoint* checkpoint) {
  turns_ = turns;
  checkpoint_ = checkpoint;
  if (turns) {
    held_.resize(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      if (plan_.groups.Has(i)) ++members_left_[plan_.groups.GroupOf(i)];
    }
  }
  return Start();
}

absl::StatusOr<ArrivingSteps::Progress> ArrivingSteps::Step(
    absl::string_view* bytes, uint64_t* position, size_t most,
    std::string* restored, uint64_t* work) {
  if (turns_ && decoder_ == nullptr) {
    KVC_ASSIGN_OR_RETURN(const bool ready, TakeTurn(bytes, position));
    if (!ready) return Progress::kNone;
  }
  absl::string_view* const source = turns_ ? &due_ : bytes;
  const size_t before = source->size();
  const bool aside =
      !plan_.selected[order_[index_]] || filter_ || output_.is_view();
  KVC_ASSIGN_OR_RETURN(const bool more,
                       aside ? DecodeAside(source, most, work)
                             : DecodePayload(source, most, restored));
  if (!turns_) *position += before - source->size();
  if (more) return aside ? Progress::kSome : Progress::kFull;
  if (remaining_ == 0) {
    KVC_RETURN_IF_ERROR(Finish());
    return Progress::kSome;
  }
  return source->empty() && output_.empty() ? Progress::kNone : Progress::kSome;
}

uint64_t ArrivingSteps::missing() const {
  if (!turns_) return remaining_;
  return plan_.header.tensors[collected_].payload_size -
         held_[collected_].size();
}

// Decodes a step of the current tensor from the front of `*bytes`; see
// TensorDecoder::Decode.
absl::StatusOr<bool> ArrivingSteps::DecodePayload(absl::string_view* bytes,
                                                  size_t most,
                                                  std::string* decoded) {
  const absl::string_view part = bytes->substr(0, remaining_);
  absl::string_view left = part;
  absl::StatusOr<bool> more = decoder_->Decode(&left, most, decoded);
  const size_t taken = part.size() - left.size();
  digest_.Update(part.substr(0, taken));
  bytes->remove_prefix(taken);
  remaining_ -= taken;
  return more;
}

// The same, of which only what is selected becomes ready. Adds to `*work`
// the bytes that were decoded.
absl::StatusOr<bool> ArrivingSteps::DecodeAside(absl::string_view* bytes,
                                                size_t most, uint64_t* work) {
  most = std::min(most, kAsideBytes);
  scratch_.clear();
  const bool selected = plan_.selected[order_[index_]];
  if (output_.is_view() && selected) output_.OpenView(index_);
  KVC_ASSIGN_OR_RETURN(const bool more, DecodePayload(bytes, most, &scratch_));
  // A decoder that stopped may have kept what it decoded.
  *work += more ? std::max(most, scratch_.size()) : scratch_.size();
  if (!selected) return more;
  if (!output_.is_open()) {
    filter_->Append(scratch_, output_.bytes());
  } else if (filter_) {
    kept_.clear();
    filter_->Append(scratch_, &kept_);
    output_.Append(kept_);
  } else {
    output_.Append(scratch_);
  }
  return more;
}

// Keeps payloads until the turn of the next tensor has come, and sets up its
// decoder. False when it needs more bytes.
absl::StatusOr<bool> ArrivingSteps::TakeTurn(absl::string_view* bytes,
                                             uint64_t* position) {
  const size_t tensor = order_[index_];
  for (; collected_ <= plan_.NeededFor(tensor); ++collected_) {
    const uint64_t size = plan_.header.tensors[collected_].payload_size;
    std::string& held = held_[collected_];
    Reserve(size, &held);
    const absl::string_view part = bytes->substr(0, size - held.size());
    held.append(part.data(), part.size());
    bytes->remove_prefix(part.size());
    *position += part.size();
    if (held.size() < size) return false;
  }
  due_ = held_[tensor];
  remaining_ = due_.size();
  KVC_RETURN_IF_ERROR(NewDecoder(tensor));
  return true;
}

// Sets up the decoder of a tensor, whose turn it is.
absl::Status ArrivingSteps::NewDecoder(size_t tensor) {
  const ArtefactTensor& its = plan_.header.tensors[tensor];
  if (plan_.groups.Has(tensor) && !plan_.Needs(plan_.groups.GroupOf(tensor))) {
    decoder_ = NewSkippingDecoder();
  } else if (plan_.groups.Has(tensor)) {
    const size_t group = plan_.groups.GroupOf(tensor);
    std::shared_ptr<const profile::GroupQuanta>& quanta = quanta_[group];
    if (quanta == nullptr) {
      KVC_ASSIGN_OR_RETURN(
          quanta, plan_.groups.Parse(group, held_[plan_.groups.LastOf(group)],
                                     checkpoint_, /*workers=*/nullptr));
    }
    decoder_ = plan_.groups.NewDecoder(tensor, quanta, checkpoint_);
  } else {
    KVC_ASSIGN_OR_RETURN(
        decoder_, its.codec.codec->NewDecoder(its.spec, its.codec.parameters));
  }
  NeedWhatIsSelected();
  return absl::OkStatus();
}

absl::Status ArrivingSteps::Start() {
  if (done()) return absl::OkStatus();
  const ArtefactTensor& tensor = Current();
  remaining_ = tensor.payload_size;
  digest_ = Digest();
  output_.Start(index_, order_[index_]);
  filter_.reset();
  if (plan_.tokens && plan_.selected[order_[index_]]) {
    filter_.emplace(tensor.spec, *plan_.tokens);
  }
  return turns_ ? absl::OkStatus() : NewDecoder(index_);
}

void ArrivingSteps::NeedWhatIsSelected() {
  // The digest covers what is not decoded.
  if (filter_) {
    decoder_->set_needed([this](uint64_t begin, uint64_t end) {
      return filter_->Overlaps(begin, end);
    });
  } else if (!plan_.selected[order_[index_]] && !plan_.verify_only) {
    decoder_->set_needed([](uint64_t, uint64_t) { return false; });
  }
}

// Ends the current tensor, whose payload is decoded.
absl::Status ArrivingSteps::Finish() {
  const size_t tensor = order_[index_];
  if (digest_.Hex() != Current().digest) {
    return DigestMismatch(Current(), plan_.PayloadBegin(tensor));
  }
  KVC_RETURN_IF_ERROR(decoder_->Finish());
  if (output_.is_view()) output_.FinishView(index_);
  decoder_.reset();
  if (turns_) std::string().swap(held_[tensor]);
  if (plan_.groups.Has(tensor) &&
      --members_left_[plan_.groups.GroupOf(tensor)] == 0) {
    quanta_.erase(plan_.groups.GroupOf(tensor));
  }
  ++index_;
  return Start();
}

}  // namespace kvcompress
