// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codecs/klt/token_weights.h"
#include "kernels/elements.h"
#include "kernels/kernels.h"
#include "kernels/lane_sums.h"
#include "kvcompress/error.h"
#include "profile/codec.h"
#include "profile/group_encoder.h"
#include "profile/member_restorer.h"
#include "profile/position.h"
#include "status/macros.h"
#include "tensor/whole_tensor.h"

namespace kvcompress {
namespace {

// How strongly steps follow the age of tokens.
constexpr double kWeighting = 0.3;
// Elements that are compared between two looks at the checkpoint.
constexpr size_t kCompared = size_t{1} << 20;

uint64_t SizeOf(const TensorSpec& spec) {
  uint64_t size = DTypeSize(spec.dtype);
  for (const uint64_t dimension : spec.shape) size *= dimension;
  return size;
}

// What a member lost. Anything when the checkpoint, which may be null, stops.
DistortionSums CompareMember(DType dtype, absl::string_view source,
                             absl::string_view decoded,
                             Checkpoint* checkpoint) {
  const auto bytes = [](absl::string_view elements) {
    return reinterpret_cast<const uint8_t*>(elements.data());
  };
  const size_t count = decoded.size() / DTypeSize(dtype);
  const auto compare = kernels::Active().rows.compare[static_cast<int>(dtype)];
  kernels::LaneSums lanes;
  for (size_t i = 0; i < count && !Stops(checkpoint); i += kCompared) {
    compare(bytes(source), bytes(decoded), i, std::min(count, i + kCompared),
            &lanes);
  }
  return lanes.Total(count);
}

// Gives the elements of a member piece by piece, and asks a checkpoint, which
// may be null, before each.
class MemberDecoder : public TensorDecoder {
 public:
  MemberDecoder(std::shared_ptr<const profile::GroupQuanta> quanta,
                size_t member, Checkpoint* checkpoint)
      : heads_(quanta->shape().batches * quanta->group().tensors[member].heads),
        tokens_(quanta->shape().tokens),
        restorer_(std::move(quanta), member),
        token_size_(restorer_.channels() * DTypeSize(restorer_.dtype())),
        at_once_(restorer_.tokens_at_once()),
        checkpoint_(checkpoint) {}

  absl::StatusOr<bool> Decode(absl::string_view* payload, size_t most,
                              std::string* decoded) override {
    payload->remove_prefix(payload->size());
    while (head_ < heads_) {
      const size_t count = std::min<uint64_t>(at_once_, tokens_ - token_);
      const size_t size = count * token_size_;
      if (!Fits(size, most, *decoded)) return true;
      if (Stops(checkpoint_)) return checkpoint_->status();
      const uint64_t begin = (head_ * tokens_ + token_) * restorer_.channels();
      const size_t before = decoded->size();
      decoded->resize(before + size);
      if (IsNeeded(begin, begin + count * restorer_.channels())) {
        restorer_.Restore(head_ / restorer_.heads(), head_ % restorer_.heads(),
                          token_, count,
                          reinterpret_cast<uint8_t*>(&(*decoded)[before]));
      }
      token_ += count;
      if (token_ < tokens_) continue;
      token_ = 0;
      ++head_;
    }
    return false;
  }

  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  const uint64_t heads_;  // of all batches
  const uint64_t tokens_;
  profile::MemberRestorer restorer_;
  const size_t token_size_;  // bytes
  const size_t at_once_;     // tokens
  Checkpoint* const checkpoint_;
  uint64_t head_ = 0;
  uint64_t token_ = 0;
};

absl::Status Damaged(absl::string_view what, const std::string& tensor) {
  return MakeError(absl::StatusCode::kDataLoss,
                   absl::StrCat("the artefact is damaged: ", what),
                   {.reason = "PAYLOAD_DAMAGED", .tensor = tensor});
}

}  // namespace

std::string* OrderedOutput::For(size_t tensor, std::string* out) {
  return tensor == due_ ? out : &kept_[tensor];
}

void OrderedOutput::End(size_t tensor, std::string* out) {
  ended_.insert(tensor);
  while (ended_.erase(due_) != 0) {
    ++due_;
    const auto kept = kept_.find(due_);
    if (kept == kept_.end()) continue;
    out->append(kept->second);
    kept_.erase(kept);
  }
}

absl::StatusOr<GroupCompression> GroupCompression::Plan(
    const CompressOptions& options, const CodecSpec& codec,
    std::optional<uint64_t> declared, ArtefactHeader* header,
    CompressReport* report) {
  GroupCompression plan;
  plan.declared_ = declared;
  KVC_ASSIGN_OR_RETURN(
      FittingProfile fitting,
      ChooseProfile(options, codec, *header, &report->warnings));
  if (fitting.profile != nullptr) {
    plan.Use(std::move(fitting), header, report);
  }
  return plan;
}

void GroupCompression::Use(FittingProfile fitting, ArtefactHeader* header,
                           CompressReport* report) {
  profile_ = std::move(fitting.profile);
  preset_ = fitting.preset;
  groups_ = std::move(fitting.groups);
  header->profile = profile_->id();
  const std::string& name = profile_->content().presets[preset_].name;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const size_t tensor : groups_[g].members) {
      group_of_[tensor] = g;
      header->tensors[tensor].codec = KltProfileSpec(name);
    }
  }
  for (const ArtefactTensor& tensor : header->tensors) {
    specs_.push_back(tensor.spec);
  }
  report->profile = ProfileUse{profile_->id(), group_of_.size()};
}

std::optional<uint32_t> GroupCompression::GroupOf(size_t tensor) const {
  const auto place = group_of_.find(tensor);
  if (place == group_of_.end()) return std::nullopt;
  return static_cast<uint32_t>(groups_[place->second].index);
}

uint64_t GroupCompression::memory(bool reconstruct) const {
  uint64_t held = 0;
  uint64_t most = 0;
  uint64_t kept = 0;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (reconstruct && !groups_.empty()) kept += SizeOf(specs_[i]);
    if (!Has(i)) continue;
    held += SizeOf(specs_[i]);
    const TensorGroup& group = groups_[group_of_.at(i)];
    if (group.last != i) continue;
    const ProfileGroup& basis = profile_->content().groups[group.index];
    // Prepared matrices, quanta twice, a block, and the payload.
    uint64_t working = 8 * basis.channels() * basis.components +
                       2 * profile::GroupQuanta::MaxMemory(basis, group.shape) +
                       16 * profile::kMaxBlockTokens * basis.channels();
    uint64_t largest = 0;
    for (const size_t member : group.members) {
      largest = std::max(largest, SizeOf(specs_[member]));
    }
    working += 2 * largest;
    most = std::max(most, held + working);
    for (const size_t member : group.members) held -= SizeOf(specs_[member]);
  }
  return most + kept;
}

uint64_t GroupCompression::PositionOf(
    const TensorGroup& group, absl::Span<const absl::string_view> sources,
    Checkpoint* checkpoint) {
  const uint64_t likely = declared_.value_or(found_.value_or(0));
  const profile::KeyPositions keys(profile_->content(), group.index,
                                   group.shape, sources, checkpoint);
  if (!keys.known()) return likely;
  const uint64_t position = declared_ ? likely : keys.Find(likely, checkpoint);
  const double fit = keys.FitAt(position);
  if (fit >= profile::kLeastFit) return position;
  if (!poor_fit_) {
    poor_fit_ = Warning{
        "PROFILE_POOR_FIT",
        absl::StrCat(
            "the keys of group ", group.index, " of the profile ",
            declared_ ? "do not fit the declared first_token: the fit is "
                      : "fit no position of the first token: the best fit is ",
            absl::StrFormat("%.2f", fit),
            ", and 1 where keys are like those of the training. Is it the "
            "profile of this model, and do tokens follow one another?"),
        specs_[group.last].name};
  }
  return likely;
}

void GroupCompression::Encode(const TensorGroup& group, Checkpoint* checkpoint,
                              std::string* payload) {
  std::vector<absl::string_view> sources;
  for (const size_t member : group.members) {
    sources.push_back(sources_.at(member));
  }
  profile::GroupEncoding encoding = {
      .group = group.index,
      .preset = preset_,
      .first_position = PositionOf(group, sources, checkpoint)};
  found_ = encoding.first_position;
  encoding.offsets = klt::OffsetsOf(
      {.weighting = kWeighting},
      klt::AttentionOf(group.shape.tokens, {}, checkpoint), checkpoint);
  if (Stops(checkpoint)) return;
  profile::EncodeGroup(profile_->content(), encoding, group.shape, sources,
                       checkpoint, payload);
}

absl::StatusOr<std::unique_ptr<TensorEncoder>> GroupCompression::NewEncoder(
    size_t tensor, const TensorSpec& spec, const EncodeHints& hints) {
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
  return NewWholeTensorEncoder(
      KltProfileCodec().traits().name, spec, elements, hints,
      [this, tensor, checkpoint = hints.checkpoint](const WholeTensor& whole) {
        EncodedTensor encoded;
        sources_[tensor] = std::string(whole.bytes);
        const TensorGroup& group = groups_[group_of_.at(tensor)];
        if (group.last == tensor) {
          payload_.clear();
          Encode(group, checkpoint, &payload_);
          encoded.payload = payload_;
        }
        return encoded;
      });
}

absl::Status GroupCompression::TakeOutcomes(
    size_t tensor, Checkpoint* checkpoint,
    const std::function<void(size_t tensor, absl::string_view bytes)>& decoded,
    std::vector<Outcome>* outcomes) {
  const TensorGroup& group = groups_[group_of_.at(tensor)];
  if (group.last != tensor) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>> quanta =
      profile::GroupQuanta::Parse(payload_, profile_, group.index, group.shape,
                                  checkpoint);
  if (!quanta.ok()) {
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
    return absl::InternalError(quanta.status().message());
  }
  for (size_t i = 0; i < group.members.size(); ++i) {
    if (Stops(checkpoint)) return checkpoint->status();
    const size_t member = group.members[i];
    const TensorSpec& spec = specs_[member];
    const auto source = sources_.find(member);
    Outcome outcome{.tensor = member};
    std::string bytes;
    absl::string_view none;
    MemberDecoder decoder(*quanta, i, checkpoint);
    KVC_RETURN_IF_ERROR(decoder.Decode(&none, SIZE_MAX, &bytes).status());
    outcome.distortion.Add(
        CompareMember(spec.dtype, source->second, bytes, checkpoint));
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
    if (TokenAccumulator::Applies(spec)) {
      TokenAccumulator tokens(spec);
      tokens.AddSource(source->second);
      tokens.AddDecoded(bytes, checkpoint);
      KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
      outcome.tokens = tokens.Compute();
    }
    if (decoded) decoded(member, bytes);
    sources_.erase(source);
    outcomes->push_back(std::move(outcome));
  }
  payload_.clear();
  return absl::OkStatus();
}

void GroupCompression::TellOfPosition(CompressReport* report) {
  if (!report->profile->first_token) report->profile->first_token = found_;
  if (poor_fit_ && !told_) report->warnings.push_back(*poor_fit_);
  told_ = poor_fit_.has_value();
}

absl::StatusOr<GroupDecompression> GroupDecompression::Plan(
    absl::Span<const std::shared_ptr<const Profile>> profiles,
    const ArtefactHeader& header) {
  GroupDecompression plan;
  if (!header.profile) return plan;
  for (const std::shared_ptr<const Profile>& profile : profiles) {
    if (profile->id().digest == header.profile->digest) plan.profile_ = profile;
  }
  if (plan.profile_ == nullptr) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("the artefact needs the profile ", header.profile->digest,
                     " for ", QuoteName(header.profile->label),
                     ", which is not here: give its file with -profile, or put "
                     "it into the server's --profile-directory"),
        {.reason = "PROFILE_MISSING", .profile = header.profile->digest});
  }
  plan.groups_ = FindGroups(plan.profile_->content(), header.tensors,
                            [](const ArtefactTensor& tensor) {
                              return tensor.codec.codec->coded_in_groups();
                            });
  uint64_t payloads = 0;
  for (size_t g = 0; g < plan.groups_.size(); ++g) {
    const TensorGroup& group = plan.groups_[g];
    for (const size_t tensor : group.members) plan.group_of_[tensor] = g;
    plan.memory_ += profile::GroupQuanta::MaxMemory(
        plan.profile_->content().groups[group.index], group.shape);
  }
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const ArtefactTensor& tensor = header.tensors[i];
    payloads += tensor.payload_size;
    if (!tensor.codec.codec->coded_in_groups()) continue;
    if (!plan.Has(i)) {
      return Damaged("its tensors do not make up the groups of its profile",
                     tensor.spec.name);
    }
    if (plan.NeededUpTo(i) != i && tensor.payload_size != 0) {
      return Damaged("a payload where none belongs", tensor.spec.name);
    }
  }
  plan.memory_ += 2 * payloads;
  return plan;
}

absl::Status GroupDecompression::Prepare(size_t tensor,
                                         absl::string_view payload,
                                         Checkpoint* checkpoint) {
  const size_t index = group_of_.at(tensor);
  if (quanta_.count(index) != 0) return absl::OkStatus();
  const TensorGroup& group = groups_[index];
  KVC_ASSIGN_OR_RETURN(
      std::shared_ptr<const profile::GroupQuanta> quanta,
      profile::GroupQuanta::Parse(payload, profile_, group.index, group.shape,
                                  checkpoint));
  quanta_[index] = std::move(quanta);
  return absl::OkStatus();
}

std::unique_ptr<TensorDecoder> GroupDecompression::NewDecoder(
    size_t tensor, Checkpoint* checkpoint) {
  const size_t index = group_of_.at(tensor);
  const std::vector<size_t>& members = groups_[index].members;
  const auto place = std::find(members.begin(), members.end(), tensor);
  return std::make_unique<MemberDecoder>(
      quanta_.at(index), static_cast<size_t>(place - members.begin()),
      checkpoint);
}

void GroupDecompression::End(size_t tensor) {
  const auto group = group_of_.find(tensor);
  if (group == group_of_.end()) return;
  if (groups_[group->second].last == tensor) quanta_.erase(group->second);
}

}  // namespace kvcompress
