// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/elements.h"
#include "kvcompress/error.h"
#include "kvcompress/profile.h"
#include "kvcompress/profile_training.h"
#include "profile/group_format.h"
#include "profile/projector.h"
#include "profile/training/basis.h"
#include "profile/training/classes.h"
#include "profile/training/covariance.h"
#include "quantization/rope.h"
#include "quantization/rope_candidates.h"
#include "quantization/steps.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using profile::GroupShape;

// Attention sinks are unlike all other tokens, and are not transformed.
constexpr uint64_t kSkipped = 4;
// Units of the covariance in a tensor's spread: values beyond 16 are limited.
constexpr float kUnitsOfSpread = 128;
// Steps in spreads of a tensor.
constexpr std::pair<const char*, double> kSteps[] = {
    {"high", 0.5}, {"max", 1.0}, {"ultra", 1.5}};

absl::Status Invalid(const TrainingCache& cache, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(cache.name(), ": ", what),
                   {.reason = "INVALID_TRAINING_CACHE"});
}

// Tensors of a cache by layer and role.
using ByPlace = std::map<std::pair<uint32_t, TensorRole>, size_t>;

absl::StatusOr<ByPlace> PlacesOf(const TrainingCache& cache) {
  ByPlace places;
  const std::vector<TensorSpec>& tensors = cache.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i];
    if (spec.role == TensorRole::kNone || !spec.layer) continue;
    const size_t rank = spec.shape.size();
    if (!IsNumber(spec.dtype) || (rank != 3 && rank != 4)) {
      return Invalid(cache, absl::StrCat(QuoteName(spec.name),
                                         " is not [batch, heads, tokens, "
                                         "head_dim] of numbers"));
    }
    if (!places.emplace(std::pair(*spec.layer, spec.role), i).second) {
      return Invalid(cache, absl::StrCat(QuoteName(spec.name),
                                         ": its layer has another tensor of "
                                         "this role"));
    }
  }
  return places;
}

// All tensors of a group of one cache.
struct GroupData {
  GroupShape shape;
  std::vector<std::string> bytes;
  std::vector<absl::string_view> sources;
};

class Trainer {
 public:
  Trainer(const TrainingOptions& options,
          absl::Span<TrainingCache* const> caches)
      : options_(options), caches_(caches) {}

  absl::StatusOr<std::string> Train() {
    if (caches_.empty()) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "there is no cache to train from",
                       {.reason = "INVALID_TRAINING_CACHE"});
    }
    content_.label = options_.label;
    for (const auto& [name, step] : kSteps) {
      content_.presets.push_back({name, coding::RoundToStep(step)});
    }
    KVC_RETURN_IF_ERROR(MakeGroups());
    KVC_RETURN_IF_ERROR(FindRotations());
    all_steps_ = content_.groups.size() * (2 * caches_.size() + 1);
    for (size_t g = 0; g < content_.groups.size(); ++g) {
      KVC_RETURN_IF_ERROR(TrainGroup(g));
    }
    content_.training = absl::StrCat("caches=", caches_.size(),
                                     " tokens=", tokens_, " metric=spread");
    return SerializeProfile(content_);
  }

 private:
  absl::Status Advance() {
    ++done_;
    return options_.progress ? options_.progress(done_, all_steps_)
                             : absl::OkStatus();
  }

  // Groups of consecutive layers of the first cache, which all others have.
  absl::Status MakeGroups() {
    for (TrainingCache* cache : caches_) {
      KVC_ASSIGN_OR_RETURN(ByPlace places, PlacesOf(*cache));
      if (places.empty()) return Invalid(*cache, "it has no keys or values");
      places_.push_back(std::move(places));
    }
    std::optional<uint32_t> layer;
    size_t layers = 0;
    for (const auto& [place, index] : places_[0]) {
      const TensorSpec& spec = caches_[0]->tensors()[index];
      if (layer != place.first) {
        const bool full = options_.layers_per_group != 0 &&
                          layers % options_.layers_per_group == 0;
        if (layers == 0 || full) content_.groups.emplace_back();
        layer = place.first;
        ++layers;
      }
      const size_t rank = spec.shape.size();
      content_.groups.back().tensors.push_back(
          {.role = place.second,
           .layer = place.first,
           .heads = spec.shape[rank - 3],
           .channels = spec.shape[rank - 1]});
    }
    return absl::OkStatus();
  }

  // The rotation of each layer's keys in the first cache; where none is found,
  // the one that most layers have.
  absl::Status FindRotations() {
    if (options_.rope_theta == 0.0) return absl::OkStatus();
    using Key = std::pair<std::pair<uint64_t, bool>, size_t>;  // and pairs
    std::map<Key, size_t> counts;
    std::map<uint32_t, Key> found;
    for (const auto& [place, index] : places_[0]) {
      if (place.second != TensorRole::kKey) continue;
      const TensorSpec& spec = caches_[0]->tensors()[index];
      const size_t rank = spec.shape.size();
      KVC_ASSIGN_OR_RETURN(const std::string bytes, caches_[0]->Read(index));
      std::vector<float> values(bytes.size() / DTypeSize(spec.dtype));
      LoadElements(spec.dtype, reinterpret_cast<const uint8_t*>(bytes.data()),
                   absl::MakeSpan(values));
      const size_t channels = spec.shape[rank - 1];
      const std::optional<coding::FoundRotation> rotation =
          coding::DetectRotation(
              values.data(), spec.shape[rank - 3], spec.shape[rank - 2],
              channels,
              coding::CandidatesFor(spec, TensorRole::kKey,
                                    {.rope_theta = options_.rope_theta},
                                    channels));
      if (!rotation || rotation->rotation.first != 0) continue;
      const Key key{{rotation->rotation.ratio, rotation->rotation.interleaved},
                    rotation->rotation.Pairs(channels)};
      ++counts[key];
      found[place.first] = key;
    }
    if (counts.empty()) return absl::OkStatus();
    std::map<Key, size_t> indices;
    for (const auto& [key, count] : counts) {
      indices[key] = content_.rotations.size();
      content_.rotations.push_back(
          {.interleaved = key.first.second,
           .increments =
               coding::Increments({.ratio = key.first.first}, key.second)});
    }
    const auto most = std::max_element(
        counts.begin(), counts.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    for (ProfileGroup& group : content_.groups) {
      for (ProfileTensor& tensor : group.tensors) {
        if (tensor.role != TensorRole::kKey) continue;
        const auto own = found.find(tensor.layer);
        const Key& key = own == found.end() ? most->first : own->second;
        if (2 * key.second <= tensor.channels) tensor.rotation = indices[key];
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<GroupData> ReadGroup(size_t cache, size_t group) {
    GroupData data;
    for (const ProfileTensor& tensor : content_.groups[group].tensors) {
      const auto place =
          places_[cache].find(std::pair(tensor.layer, tensor.role));
      if (place == places_[cache].end()) {
        return Invalid(
            *caches_[cache],
            absl::StrCat("it lacks a tensor of layer ", tensor.layer));
      }
      const TensorSpec& spec = caches_[cache]->tensors()[place->second];
      GroupShape shape;
      if (!profile::Fits(tensor, spec, &shape) ||
          (!data.bytes.empty() && (shape.batches != data.shape.batches ||
                                   shape.tokens != data.shape.tokens))) {
        return Invalid(*caches_[cache],
                       absl::StrCat(QuoteName(spec.name),
                                    " has another shape than its like"));
      }
      data.shape.batches = shape.batches;
      data.shape.tokens = shape.tokens;
      data.shape.dtypes.push_back(spec.dtype);
      KVC_ASSIGN_OR_RETURN(std::string bytes,
                           caches_[cache]->Read(place->second));
      if (!std::isfinite(LargestMagnitude(
              spec.dtype, reinterpret_cast<const uint8_t*>(bytes.data()),
              bytes.size() / DTypeSize(spec.dtype)))) {
        return Invalid(*caches_[cache],
                       absl::StrCat(QuoteName(spec.name),
                                    " has values that are not finite"));
      }
      data.bytes.push_back(std::move(bytes));
    }
    for (const std::string& bytes : data.bytes) data.sources.push_back(bytes);
    return data;
  }

  // Calls `take(rows, count)` with the tokens of a group of a cache.
  template <typename Take>
  absl::Status ForTokens(size_t cache, size_t group, Take take) {
    KVC_ASSIGN_OR_RETURN(const GroupData data, ReadGroup(cache, group));
    profile::TokenGatherer gatherer(content_, group, data.shape, data.sources,
                                    /*first_position=*/0);
    const size_t channels = content_.groups[group].channels();
    std::vector<float> values;
    for (uint64_t batch = 0; batch < data.shape.batches; ++batch) {
      for (uint64_t t = kSkipped; t < data.shape.tokens;) {
        const size_t count = std::min<uint64_t>(data.shape.tokens - t,
                                                profile::kCovarianceTokens);
        values.resize(count * channels);
        gatherer.Gather(batch, t, count, values.data());
        take(values, count);
        t += count;
      }
    }
    return absl::OkStatus();
  }

  absl::Status TrainGroup(size_t index) {
    ProfileGroup& group = content_.groups[index];
    size_t channels = 0;
    for (const ProfileTensor& tensor : group.tensors) {
      channels += tensor.width();
    }
    group.means.resize(channels);  // its size is the number of channels
    KVC_ASSIGN_OR_RETURN(profile::Covariance covariance, Begin(index));
    for (size_t cache = 0; cache < caches_.size(); ++cache) {
      KVC_RETURN_IF_ERROR(ForTokens(
          cache, index, [&](absl::Span<const float> rows, size_t count) {
            covariance.Add(rows, count);
            if (index == 0) tokens_ += count;
          }));
      KVC_RETURN_IF_ERROR(Advance());
    }
    group.means = covariance.Means();
    KVC_ASSIGN_OR_RETURN(
        const std::vector<float> variances,
        profile::FindBasis(
            covariance.Take(), units_,
            std::min<size_t>(options_.directions, kMaxGroupDirections),
            &group));
    KVC_RETURN_IF_ERROR(Advance());
    return FindClasses(index, variances);
  }

  // A covariance with origins and units from the first cache.
  absl::StatusOr<profile::Covariance> Begin(size_t index) {
    const ProfileGroup& group = content_.groups[index];
    const size_t channels = group.channels();
    std::vector<double> sums(channels);
    std::vector<double> squares(channels);
    double tokens = 0;
    KVC_RETURN_IF_ERROR(
        ForTokens(0, index, [&](absl::Span<const float> rows, size_t count) {
          for (size_t t = 0; t < count; ++t) {
            for (size_t i = 0; i < channels; ++i) {
              const double value = rows[t * channels + i];
              sums[i] += value;
              squares[i] += value * value;
            }
          }
          tokens += static_cast<double>(count);
        }));
    if (tokens == 0) {
      return Invalid(*caches_[0],
                     absl::StrCat("it has no more than ", kSkipped, " tokens"));
    }
    std::vector<float> origins(channels);
    units_.resize(channels);
    size_t first = 0;
    for (const ProfileTensor& tensor : group.tensors) {
      double variance = 0;
      for (size_t i = first; i < first + tensor.width(); ++i) {
        const double mean = sums[i] / tokens;
        origins[i] = static_cast<float>(mean);
        variance += squares[i] / tokens - mean * mean;
      }
      const float spread =
          std::max(profile::kLeastSpread,
                   static_cast<float>(std::sqrt(std::max(
                       0.0, variance / static_cast<double>(tensor.width())))));
      std::fill_n(units_.begin() + static_cast<ptrdiff_t>(first),
                  tensor.width(), spread / kUnitsOfSpread);
      first += tensor.width();
    }
    return profile::Covariance(std::move(origins), units_);
  }

  absl::Status FindClasses(size_t index, const std::vector<float>& variances) {
    ProfileGroup& group = content_.groups[index];
    std::vector<profile::ClassFinder> finders;
    for (const ProfilePreset& preset : content_.presets) {
      finders.emplace_back(preset.step, variances);
    }
    profile::Projector projector(group);
    std::vector<float> values;
    std::vector<float> projected;
    for (size_t cache = 0; cache < caches_.size(); ++cache) {
      KVC_RETURN_IF_ERROR(ForTokens(
          cache, index, [&](absl::Span<const float> rows, size_t count) {
            values.assign(rows.begin(), rows.end());
            projected.resize(count * group.directions);
            projector.Project(count, values.data(), projected.data());
            for (profile::ClassFinder& finder : finders) {
              finder.Add(projected, count);
            }
          }));
      KVC_RETURN_IF_ERROR(Advance());
    }
    for (const profile::ClassFinder& finder : finders) {
      const std::vector<uint8_t> classes = finder.Classes();
      group.classes.insert(group.classes.end(), classes.begin(), classes.end());
    }
    return absl::OkStatus();
  }

  const TrainingOptions& options_;
  const absl::Span<TrainingCache* const> caches_;
  std::vector<ByPlace> places_;  // of each cache
  ProfileContent content_;
  std::vector<float> units_;  // of the covariance of the group under way
  uint64_t tokens_ = 0;
  size_t done_ = 0;
  size_t all_steps_ = 0;
};

}  // namespace

absl::StatusOr<std::string> TrainProfile(
    const TrainingOptions& options, absl::Span<TrainingCache* const> caches) {
  return Trainer(options, caches).Train();
}

}  // namespace kvcompress
