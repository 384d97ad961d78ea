// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/group_contract.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kvcompress/quality.h"
#include "pipeline/group_members.h"
#include "profile/group_decoder.h"
#include "profile/group_exceptions.h"
#include "profile/group_projection.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using profile::GroupQuanta;

// Encodings of a group, the last of which is kept.
constexpr int kTrials = 4;
constexpr int kDearTrials = 2;
// What a bit is worth to the trellis, in squared steps. With 0.05 a contract is
// 2 % larger, with 0.13 as large.
constexpr float kErrorPerBit = 0.08f;
// The square of the errors with it, of what it is without one, at the same
// step.
constexpr double kTrellisError = 0.7;
// The target of errors, as a part of the square that bounds allow.
constexpr double kAim = 0.985;
// More of it than this is worth another trial.
constexpr double kLoose = 1.05;
// Squares of errors change by at most this from one trial to the next.
constexpr double kMaxChange = 4;
// Units of tensors are within this of those of the profile.
constexpr double kMaxUnit = 1024;
// How much lower the bound of exceptions becomes where too few were taken: by
// quarters of an octave, and by octaves where these were not enough.
constexpr float kLower = 0.84f;
constexpr float kFarLower = 0.5f;
constexpr int kMaxLower = 8;
constexpr int kMaxFarLower = 20;
// A payload has at most so many times the bytes of its tensors, as where bounds
// hold by exceptions alone; and headers, which are most of that of few tokens.
constexpr uint64_t kMaxExpansion = 2;
constexpr uint64_t kSmallPayload = 64 << 10;

double FromDecibels(double decibels) { return std::pow(10, decibels / 10); }

// By what the square of the errors may grow until the first bound is met; below
// 1 where it must shrink. The largest error does not count.
double RoomOf(const Metrics& metrics, const QualityThresholds& bounds) {
  double room = std::numeric_limits<double>::infinity();
  const auto at_least = [&](const std::optional<double>& decibels,
                            const std::optional<double>& bound) {
    if (!decibels || !bound) return;
    room = std::min(room, FromDecibels(*decibels - *bound));
  };
  if (bounds.max_rmse && metrics.rmse > 0) {
    const double ratio = *bounds.max_rmse / metrics.rmse;
    room = std::min(room, ratio * ratio);
  }
  at_least(metrics.snr_db, bounds.min_snr_db);
  at_least(metrics.centred_snr_db, bounds.min_centred_snr_db);
  at_least(metrics.token_snr_db_p1, bounds.min_token_snr_db_p1);
  if (bounds.min_cosine_similarity && metrics.cosine_similarity < 1) {
    room = std::min(room, (1 - *bounds.min_cosine_similarity) /
                              (1 - metrics.cosine_similarity));
  }
  return room;
}

// The largest error that surely holds the bound.
float LimitOf(const QualityThresholds& bounds) {
  if (!bounds.max_error) return std::numeric_limits<float>::infinity();
  const float limit =
      std::nextafter(static_cast<float>(*bounds.max_error), 0.0f);
  return std::nextafter(limit, 0.0f);
}

class ContractEncoder {
 public:
  ContractEncoder(std::shared_ptr<const Profile> profile,
                  profile::GroupEncoding encoding,
                  const profile::GroupShape& shape,
                  const ContractMembers& members, Workers* workers,
                  Checkpoint* checkpoint)
      : profile_(std::move(profile)),
        encoding_(std::move(encoding)),
        shape_(shape),
        members_(members),
        workers_(workers),
        checkpoint_(checkpoint) {
    encoding_.error_per_bit = kErrorPerBit;
    for (const absl::string_view source : members_.sources) {
      most_ += kMaxExpansion * source.size();
    }
  }

  absl::StatusOr<bool> Encode(std::string* payload) {
    KVC_RETURN_IF_ERROR(GuessUnits());
    projection_.emplace(profile_, encoding_.group, shape_, members_.sources,
                        encoding_.first_position, workers_, checkpoint_);
    if (Stops(checkpoint_)) return checkpoint_->status();
    for (int trial = 1;; ++trial) {
      KVC_RETURN_IF_ERROR(EncodeOnce(payload));
      // Neither finer steps nor coarser ones would make up for that.
      if (payload->size() > most_) return false;
      // What takes more than the tensors is not worth a search.
      const bool dear = payload->size() > most_ / kMaxExpansion;
      const int trials = dear ? kDearTrials : kTrials;
      if (trial >= trials) break;
      KVC_ASSIGN_OR_RETURN(const bool changed,
                           CorrectUnits(/*last=*/trial + 1 == trials));
      if (!changed) break;
    }
    return TakeExceptions(payload);
  }

 private:
  const ProfileGroup& group() const {
    return profile_->content().groups[encoding_.group];
  }
  size_t count() const { return members_.specs.size(); }

  // Shares members, each with the checkpoint of the thread that works on it.
  absl::Status ForEachMember(
      absl::FunctionRef<absl::Status(size_t m, Checkpoint* checkpoint)> work) {
    return TryForEach(workers_, count(), checkpoint_, work);
  }

  // The square of the error of a channel of each member per squared unit of
  // error of all components.
  std::vector<double> Gains() const {
    const size_t channels = group().channels();
    std::vector<double> squares(channels);
    for (size_t j = 0; j < group().components && !Stops(checkpoint_); ++j) {
      const int16_t* const row = &group().decode[j * channels];
      for (size_t i = 0; i < channels; ++i) {
        squares[i] += static_cast<double>(row[i]) * row[i];
      }
    }
    std::vector<double> gains(count());
    size_t first = 0;
    for (size_t m = 0; m < count(); ++m) {
      const size_t width = group().tensors[m].width();
      for (size_t i = first; i < first + width; ++i) {
        const double scale = group().scales[i];
        gains[m] += squares[i] * scale * scale / static_cast<double>(width);
      }
      first += width;
    }
    return gains;
  }

  // The unit with which errors that are spread evenly over a step are within
  // all bounds.
  absl::Status GuessUnits() {
    const double step = profile_->content().presets[encoding_.preset].step;
    const std::vector<double> gains = Gains();
    std::vector<double> energies(count());
    KVC_RETURN_IF_ERROR(ForEachMember([&](size_t m, Checkpoint* checkpoint) {
      const absl::string_view source = members_.sources[m];
      const DType dtype = members_.specs[m].dtype;
      energies[m] = CompareMember(dtype, source, source, checkpoint).sum_x2 /
                    static_cast<double>(source.size() / DTypeSize(dtype));
      return StatusOf(checkpoint);
    }));
    double least = std::numeric_limits<double>::infinity();
    for (size_t m = 0; m < count(); ++m) {
      const double energy = energies[m];
      const QualityThresholds& bounds = members_.thresholds[m];
      double most = std::numeric_limits<double>::infinity();
      if (bounds.max_rmse) most = *bounds.max_rmse * *bounds.max_rmse;
      if (bounds.min_snr_db) {
        most = std::min(most, energy / FromDecibels(*bounds.min_snr_db));
      }
      if (bounds.min_cosine_similarity) {
        most = std::min(most, 2 * energy * (1 - *bounds.min_cosine_similarity));
      }
      const double error = gains[m] * kTrellisError * step * step / 12;
      if (std::isfinite(most) && most > 0 && error > 0) {
        least = std::min(least, std::sqrt(kAim * most / error));
      }
    }
    unit_ = std::isfinite(least) ? least : 1;
    return absl::OkStatus();
  }

  void SetUnits() {
    unit_ = std::clamp(unit_, 1 / kMaxUnit, kMaxUnit);
    encoding_.units.assign(count(), profile::RoundToUnit(unit_));
    encoding_.shift = profile::ShiftOf(unit_);
  }

  absl::Status EncodeOnce(std::string* payload) {
    SetUnits();
    payload->clear();
    quanta_.reset();
    profile::EncodeGroup(profile_, encoding_, shape_, members_.sources,
                         workers_, checkpoint_, payload, &*projection_);
    KVC_RETURN_IF_ERROR(StatusOf(checkpoint_));
    KVC_ASSIGN_OR_RETURN(quanta_, QuantaOf(*payload, profile_, encoding_.group,
                                           shape_, workers_, checkpoint_));
    return absl::OkStatus();
  }

  // Returns whether another trial is worth it. For the last, the unit does not
  // become larger, and one that was too large becomes what was not.
  absl::StatusOr<bool> CorrectUnits(bool last) {
    std::vector<double> rooms(count());
    KVC_RETURN_IF_ERROR(ForEachMember([&](size_t m, Checkpoint* checkpoint) {
      KVC_ASSIGN_OR_RETURN(std::string decoded,
                           RestoreMember(quanta_, m, checkpoint));
      const QualityThresholds& bounds = members_.thresholds[m];
      // What becomes an exception in any case is no reason for a finer step.
      profile::TakeExceptions(members_.specs[m].dtype, members_.sources[m],
                              LimitOf(bounds), checkpoint, &decoded);
      KVC_ASSIGN_OR_RETURN(const MemberQuality quality,
                           MeasureMember(members_.specs[m], members_.sources[m],
                                         decoded, checkpoint));
      rooms[m] = RoomOf(quality.MetricsOf(members_.specs[m]), bounds);
      return absl::OkStatus();
    }));
    const double room = *std::min_element(rooms.begin(), rooms.end());
    if (room > 1) holding_ = std::max(holding_, unit_);
    if (room > 1 && (room < kLoose || last || !std::isfinite(room))) {
      return false;
    }
    const double factor =
        std::sqrt(std::clamp(kAim * room, 1 / kMaxChange, kMaxChange));
    if (last) {
      unit_ = holding_ > 0 ? holding_ : unit_ * factor * factor;
    } else {
      unit_ = room > 1 ? unit_ * factor : std::max(unit_ * factor, holding_);
    }
    return true;
  }

  // False where there is no memory for them.
  absl::StatusOr<bool> TakeExceptions(std::string* payload) {
    std::vector<std::string> lists(count());
    KVC_RETURN_IF_ERROR(ForEachMember([&](size_t m, Checkpoint* checkpoint) {
      KVC_ASSIGN_OR_RETURN(lists[m], ExceptionsOf(m, checkpoint));
      return absl::OkStatus();
    }));
    uint64_t bytes = 0;
    bool any = false;
    for (const std::string& list : lists) {
      any = any || !list.empty();
      bytes += sizeof(uint32_t) + list.size();
    }
    if (!any) return true;
    if (bytes > most_ - payload->size() ||
        bytes > std::numeric_limits<uint32_t>::max()) {
      return false;
    }
    profile::AddExceptions(lists, payload);
    return true;
  }

  // Of a member: about the fewest that keep its bounds.
  absl::StatusOr<std::string> ExceptionsOf(size_t m, Checkpoint* checkpoint) {
    const TensorSpec& spec = members_.specs[m];
    const absl::string_view source = members_.sources[m];
    const QualityThresholds& bounds = members_.thresholds[m];
    KVC_ASSIGN_OR_RETURN(const std::string restored,
                         RestoreMember(quanta_, m, checkpoint));
    float limit = LimitOf(bounds);
    for (int i = 0;; ++i) {
      if (Stops(checkpoint)) return checkpoint->status();
      std::string decoded = restored;
      std::string list = profile::TakeExceptions(spec.dtype, source, limit,
                                                 checkpoint, &decoded);
      KVC_ASSIGN_OR_RETURN(const MemberQuality quality,
                           MeasureMember(spec, source, decoded, checkpoint));
      const Metrics metrics = quality.MetricsOf(spec);
      if (Judge(metrics, bounds).passed || limit == 0 || list.size() > most_) {
        return list;
      }
      const float lower = i < kMaxLower      ? kLower
                          : i < kMaxFarLower ? kFarLower
                                             : 0;
      limit = lower * std::min(limit, static_cast<float>(metrics.max_error));
    }
  }

  const std::shared_ptr<const Profile> profile_;
  profile::GroupEncoding encoding_;
  const profile::GroupShape& shape_;
  const ContractMembers& members_;
  uint64_t most_ = kSmallPayload;  // bytes of the payload
  Workers* const workers_;
  Checkpoint* const checkpoint_;
  // Of all members: with units of their own the basis would not be that of
  // what is coded, and large components would leak into small ones.
  double unit_ = 1;
  double holding_ = 0;  // the largest that held all bounds, or 0
  std::optional<profile::GroupProjection> projection_;
  std::shared_ptr<const GroupQuanta> quanta_;
};

}  // namespace

absl::StatusOr<bool> EncodeWithinBounds(
    std::shared_ptr<const Profile> profile, profile::GroupEncoding encoding,
    const profile::GroupShape& shape, const ContractMembers& members,
    Workers* workers, Checkpoint* checkpoint, std::string* payload) {
  return ContractEncoder(std::move(profile), std::move(encoding), shape,
                         members, workers, checkpoint)
      .Encode(payload);
}

}  // namespace kvcompress
