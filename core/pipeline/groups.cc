// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/groups.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codecs/auto/auto.h"
#include "codecs/klt/token_weights.h"
#include "kvcompress/error.h"
#include "pipeline/group_contract.h"
#include "pipeline/group_exact.h"
#include "profile/best_encoding.h"
#include "profile/codec.h"
#include "profile/group_encoder.h"
#include "profile/group_projection.h"
#include "profile/group_sinks.h"
#include "profile/position.h"
#include "profile/residuals.h"
#include "status/macros.h"
#include "tensor/whole_tensor.h"

namespace kvcompress {
namespace {

// How strongly steps follow the age of tokens.
constexpr double kWeighting = 0.3;

// Bits for each value that bounds take at most with a basis that suits the
// cache: klt without a profile needs fewer within the usual ones.
constexpr double kPoorBits = 4;
// What a bit is worth to the trellis where residuals make up for errors, in
// squared steps.
constexpr float kExactErrorPerBit = 0.05f;
// Shorter caches take more bytes for each token, whatever their text.
constexpr uint64_t kFewestTokens = 512;

}  // namespace

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
    plan.exact_ = fitting.groups.front().shape.exact;
    plan.falls_back_ = plan.exact_ || codec.codec == &AutoCodec();
    plan.alone_codec_ = codec;
    plan.effort_ = options.effort;
    plan.block_tokens_ = options.block_tokens;
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
      header->tensors[tensor].codec = ProfileCodecSpec(codec(), name);
    }
  }
  for (const ArtefactTensor& tensor : header->tensors) {
    specs_.push_back(tensor.spec);
  }
  report->profile =
      ProfileUse{.id = profile_->id(), .tensors = group_of_.size()};
  report->profile->preset = profile_->content().presets[preset_];
  // What the preset alone would lose.
  if (exact_) report->profile->preset->expected.reset();
}

const Codec& GroupCompression::codec() const {
  return exact_ ? LosslessProfileCodec() : KltProfileCodec();
}

std::optional<uint32_t> GroupCompression::GroupOf(size_t tensor) const {
  const auto place = group_of_.find(tensor);
  if (place == group_of_.end()) return std::nullopt;
  return static_cast<uint32_t>(groups_[place->second].index);
}

uint64_t GroupCompression::PositionOf(
    const TensorGroup& group, absl::Span<const absl::string_view> sources,
    Checkpoint* checkpoint) {
  const uint64_t likely = declared_.value_or(found_.value_or(0));
  fits_ = true;
  const profile::KeyPositions keys(profile_->content(), group.index,
                                   group.shape, sources, checkpoint);
  if (!keys.known()) return likely;
  const uint64_t position = declared_ ? likely : keys.Find(likely, checkpoint);
  const double fit = keys.FitAt(position);
  fits_ = fit >= profile::kLeastFit;
  least_fit_ = std::min(fit, least_fit_.value_or(fit));
  if (fits_) return position;
  if (!poor_fit_.warning) {
    poor_fit_.warning = Warning{
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

std::vector<absl::string_view> GroupCompression::SourcesOf(
    const TensorGroup& group) const {
  std::vector<absl::string_view> sources;
  for (const size_t member : group.members) {
    sources.push_back(sources_.at(member));
  }
  return sources;
}

profile::GroupEncoding GroupCompression::EncodingOf(
    const TensorGroup& group, absl::Span<const absl::string_view> sources,
    Workers* workers, Checkpoint* checkpoint) {
  profile::GroupEncoding encoding = {
      .group = group.index,
      .preset = preset_,
      .first_position = PositionOf(group, sources, checkpoint),
      .block_tokens = block_tokens_};
  found_ = encoding.first_position;
  encoding.sinks =
      profile::FindSinks(profile_->content().groups[group.index], group.shape,
                         sources, workers, checkpoint);
  const std::vector<std::string>& marks = profile_->content().caches;
  if (group.index == 0 &&
      absl::c_linear_search(marks, MarkOfCache(sources[0]))) {
    trained_on_.warning = Warning{
        "PROFILE_TRAINING_CACHE",
        "the profile was trained on this cache: others take more bytes and "
        "lose more. Judge a profile by caches of other texts",
        specs_[group.last].name};
  }
  return encoding;
}

absl::StatusOr<bool> GroupCompression::EncodeContract(
    const TensorGroup& group, profile::GroupEncoding encoding, Workers* workers,
    Checkpoint* checkpoint, std::string* payload) {
  ContractMembers members = {.sources = SourcesOf(group)};
  for (const size_t member : group.members) {
    members.specs.push_back(specs_[member]);
    members.thresholds.push_back(hints_.at(member).thresholds);
  }
  KVC_ASSIGN_OR_RETURN(
      const bool holds,
      EncodeWithinBounds(profile_, std::move(encoding), group.shape, members,
                         workers, checkpoint, payload));
  uint64_t values = 0;
  for (const TensorSpec& spec : members.specs) {
    values += ElementCount(spec).value_or(0);
  }
  const double bits =
      8 * static_cast<double>(payload->size()) / static_cast<double>(values);
  if (holds && !falls_back_ && bits > kPoorBits && !poor_rate_.warning) {
    poor_rate_.warning = Warning{
        "PROFILE_POOR_RATE",
        absl::StrCat(
            "the bounds of group ", group.index, " of the profile take ",
            absl::StrFormat("%.1f", bits),
            " bits for each value, more than without a profile. Was it trained "
            "for contract, on many texts? The codec auto leaves out a profile "
            "that does not pay"),
        specs_[group.last].name};
  }
  return holds;
}

absl::Status GroupCompression::Encode(const TensorGroup& group,
                                      Workers* workers, Checkpoint* checkpoint,
                                      std::string* payload) {
  const std::vector<absl::string_view> sources = SourcesOf(group);
  profile::GroupEncoding encoding =
      EncodingOf(group, sources, workers, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (profile_->content().presets[preset_].name == kContractPreset) {
    KVC_ASSIGN_OR_RETURN(const bool holds,
                         EncodeContract(group, std::move(encoding), workers,
                                        checkpoint, payload));
    if (holds) return absl::OkStatus();
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("the bounds of group ", group.index,
                     " of the profile take more than twice the bytes of its "
                     "tensors; use the codec auto, which leaves out a profile "
                     "that does not pay, or klt:contract without one"),
        {.reason = "PROFILE_UNSUITABLE", .tensor = specs_[group.last].name});
  }
  // How old the tokens of a later part are is not known.
  if (encoding.first_position == 0) {
    encoding.offsets = klt::OffsetsOf(
        {.weighting = kWeighting},
        klt::AttentionOf(group.shape.tokens, {}, checkpoint), checkpoint);
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  }
  profile::RefineSinks(encoding.sinks, group.shape.tokens, &encoding.offsets);
  if (effort_ != Effort::kBest) {
    profile::EncodeGroup(profile_, encoding, group.shape, sources, workers,
                         checkpoint, payload);
  } else {
    const profile::GroupProjection projection(
        profile_, group.index, group.shape, sources, encoding.first_position,
        workers, checkpoint);
    if (Stops(checkpoint)) return checkpoint->status();
    profile::EncodeGroupBest(profile_, std::move(encoding), group.shape,
                             sources, workers, checkpoint, payload, projection);
  }
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  CompareRate(group, payload->size());
  return absl::OkStatus();
}

absl::Status GroupCompression::EncodeExact(const TensorGroup& group,
                                           Workers* workers,
                                           Checkpoint* checkpoint,
                                           std::string* payload) {
  std::vector<absl::string_view> sources = SourcesOf(group);
  // Residuals make up for zeros instead of what is not finite.
  std::vector<std::string> finite;
  finite.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!not_finite_.contains(group.members[i])) continue;
    finite.push_back(
        profile::FiniteElements(group.shape.dtypes[i], sources[i]));
    sources[i] = finite.back();
  }
  profile::GroupEncoding encoding =
      EncodingOf(group, sources, workers, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (effort_ != Effort::kFast) encoding.error_per_bit = kExactErrorPerBit;
  return EncodeExactly(profile_, encoding, group.shape,
                       {.lossy = sources, .exact = SourcesOf(group)}, workers,
                       checkpoint, payload);
}

void GroupCompression::CompareRate(const TensorGroup& group, uint64_t size) {
  for (const size_t member : group.members) {
    coded_values_ += ElementCount(specs_[member]).value_or(0);
  }
  coded_bytes_ += size;
  const ProfilePreset& preset = profile_->content().presets[preset_];
  if (++coded_groups_ < groups_.size() || !preset.expected ||
      poor_fit_.warning || group.shape.tokens < kFewestTokens) {
    return;
  }
  unusual_.warning = UnusualRate(preset, coded_values_, coded_bytes_);
  if (unusual_.warning) unusual_.warning->tensor = specs_[group.last].name;
}

absl::Status GroupCompression::EncodeSmallest(const TensorGroup& group,
                                              Workers* workers,
                                              Checkpoint* checkpoint) {
  bool holds = exact_;
  if (exact_) {
    KVC_RETURN_IF_ERROR(EncodeExact(group, workers, checkpoint, &payload_));
  } else if (std::none_of(group.members.begin(), group.members.end(),
                          [this](size_t member) {
                            return not_finite_.contains(member);
                          })) {
    profile::GroupEncoding encoding =
        EncodingOf(group, SourcesOf(group), workers, checkpoint);
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
    if (fits_) {
      KVC_ASSIGN_OR_RETURN(
          holds, EncodeContract(group, std::move(encoding), workers, checkpoint,
                                &payload_));
    }
  }
  std::vector<AloneSource> sources;
  for (const size_t member : group.members) {
    sources.push_back(
        {specs_[member], sources_.at(member), std::move(hints_.at(member))});
  }
  absl::StatusOr<std::vector<AloneTensor>> alone = EncodeAlone(
      alone_codec_, sources, holds ? payload_.size() : UINT64_MAX, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  if (!alone.ok()) return holds ? absl::OkStatus() : alone.status();
  alone_ = *std::move(alone);
  if (!alone_.empty()) payload_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TensorEncoder>> GroupCompression::NewEncoder(
    size_t tensor, const TensorSpec& spec, const EncodeHints& hints) {
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(spec));
  hints_[tensor] = hints;
  return NewWholeTensorEncoder(
      codec().traits().name, spec, elements, hints,
      [this, tensor, workers = hints.workers,
       checkpoint = hints.checkpoint](const WholeTensor& whole) {
        EncodedTensor encoded;
        sources_[tensor] = whole.own != nullptr ? std::move(*whole.own)
                                                : std::string(whole.bytes);
        if (!std::isfinite(whole.largest)) not_finite_.insert(tensor);
        const TensorGroup& group = groups_[group_of_.at(tensor)];
        if (group.last == tensor) {
          payload_.clear();
          status_ = falls_back_ ? EncodeSmallest(group, workers, checkpoint)
                                : Encode(group, workers, checkpoint, &payload_);
          encoded.payload = payload_;
        }
        return encoded;
      },
      /*takes_not_finite=*/falls_back_);
}

absl::Status GroupCompression::TakeOutcomes(
    size_t tensor, Workers* workers, Checkpoint* checkpoint,
    const std::function<void(size_t tensor, absl::string_view bytes)>& decoded,
    std::vector<Outcome>* outcomes) {
  const TensorGroup& group = groups_[group_of_.at(tensor)];
  if (group.last != tensor) return absl::OkStatus();
  KVC_RETURN_IF_ERROR(status_);
  if (!alone_.empty()) {
    for (size_t i = 0; i < group.members.size(); ++i) {
      const size_t member = group.members[i];
      if (decoded) decoded(member, alone_[i].decoded);
      MemberQuality quality = alone_[i].quality;
      outcomes->push_back({member, std::move(quality), std::move(alone_[i])});
      sources_.erase(member);
    }
    alone_.clear();
    return absl::OkStatus();
  }
  KVC_ASSIGN_OR_RETURN(const std::shared_ptr<const profile::GroupQuanta> quanta,
                       QuantaOf(payload_, profile_, group.index, group.shape,
                                workers, checkpoint));
  std::vector<MemberQuality> qualities(group.members.size());
  std::mutex giving;
  KVC_RETURN_IF_ERROR(TryForEach(
      workers, qualities.size(), checkpoint, [&](size_t i, Checkpoint* here) {
        const size_t member = group.members[i];
        KVC_ASSIGN_OR_RETURN(const std::string bytes,
                             RestoreMember(quanta, i, here));
        KVC_ASSIGN_OR_RETURN(
            qualities[i],
            MeasureMember(specs_[member], sources_.at(member), bytes, here));
        if (exact_ && bytes != sources_.at(member)) {
          return absl::InternalError("a tensor was not restored bit by bit");
        }
        std::string().swap(sources_.at(member));
        if (!decoded) return absl::OkStatus();
        const std::lock_guard<std::mutex> lock(giving);
        decoded(member, bytes);
        return absl::OkStatus();
      }));
  for (size_t i = 0; i < qualities.size(); ++i) {
    const size_t member = group.members[i];
    sources_.erase(member);
    outcomes->push_back({member, qualities[i]});
  }
  payload_.clear();
  return absl::OkStatus();
}

void GroupCompression::TellOfPosition(CompressReport* report) {
  if (!report->profile->first_token) report->profile->first_token = found_;
  report->profile->fit = least_fit_;
  for (Told* each : {&poor_fit_, &poor_rate_, &unusual_, &trained_on_}) {
    if (!each->warning || std::exchange(each->told, true)) continue;
    report->warnings.push_back(*each->warning);
  }
}

}  // namespace kvcompress
