// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
// More than 400 lines: the passes over the caches share all of their state.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/elements.h"
#include "kvcompress/error.h"
#include "kvcompress/profile.h"
#include "kvcompress/profile_training.h"
#include "profile/group_format.h"
#include "profile/prepared_basis.h"
#include "profile/projector.h"
#include "profile/training/basis.h"
#include "profile/training/classes.h"
#include "profile/training/covariance.h"
#include "profile/training/metric.h"
#include "profile/training/places.h"
#include "profile/training/rotations.h"
#include "quantization/steps.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

using profile::ByPlace;
using profile::GroupShape;
using profile::InvalidCache;

// Attention sinks are unlike all other tokens, and are not transformed.
constexpr uint64_t kSkipped = 4;
// Units of the covariance in a tensor's spread: values beyond 16 are limited.
constexpr float kUnitsOfSpread = 128;
// Steps in spreads of a tensor.
constexpr std::pair<const char*, double> kSteps[] = {
    {"high", 0.5}, {"max", 1.0}, {"ultra", 1.5}};
// The step in errors that bounds allow: with it they are about met.
constexpr double kContractStep = 3.3;

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
    SetPresets();
    KVC_RETURN_IF_ERROR(MakeGroups());
    if (options_.basis != nullptr) {
      KVC_RETURN_IF_ERROR(TakeBasis());
    } else {
      KVC_RETURN_IF_ERROR(SetRotations());
    }
    KVC_RETURN_IF_ERROR(MarkCaches());
    const size_t passes = options_.basis != nullptr ? 1 : 2;
    all_steps_ = content_.groups.size() * (passes * caches_.size() + 1);
    for (size_t g = 0; g < content_.groups.size(); ++g) {
      KVC_RETURN_IF_ERROR(TrainGroup(g));
    }
    content_.training =
        absl::StrCat("caches=", caches_.size(), " tokens=", tokens_,
                     options_.metric != nullptr ? " metric=given"
                     : options_.contract        ? " metric=bounds"
                                                : " metric=spread",
                     options_.note.empty() ? "" : " ", options_.note);
    if (options_.basis != nullptr) {
      content_.training = options_.basis->training;
    }
    return SerializeProfile(content_);
  }

 private:
  absl::Status Advance() {
    ++done_;
    return options_.progress ? options_.progress(done_, all_steps_)
                             : absl::OkStatus();
  }

  void SetPresets() {
    content_.presets = options_.presets;
    for (ProfilePreset& preset : content_.presets) {
      preset.step = coding::RoundToStep(preset.step);
    }
    if (!content_.presets.empty()) return;
    if (options_.contract) {
      content_.presets.push_back(
          {"contract", coding::RoundToStep(kContractStep), {}});
      return;
    }
    for (const auto& [name, step] : kSteps) {
      content_.presets.push_back({name, coding::RoundToStep(step), {}});
    }
  }

  // Those of the metric, or those that the first cache shows.
  absl::Status SetRotations() {
    bool given = false;
    if (options_.metric != nullptr) {
      KVC_ASSIGN_OR_RETURN(given,
                           profile::TakeRotations(options_.metric, &content_));
    }
    if (given) return absl::OkStatus();
    return profile::FindRotations(caches_[0], options_.rope_theta, &content_);
  }

  // All of a trained profile but label, presets and classes. The groups are
  // its own.
  absl::Status TakeBasis() {
    content_.rotations = options_.basis->rotations;
    content_.groups = options_.basis->groups;
    content_.caches = options_.basis->caches;
    for (ProfileGroup& group : content_.groups) group.classes.clear();
    return absl::OkStatus();
  }

  // The classes of presets that the basis has at the same steps, if it has all.
  bool TakeClasses(size_t index) {
    ProfileGroup& group = content_.groups[index];
    const std::vector<ProfilePreset>& known = options_.basis->presets;
    for (const ProfilePreset& preset : content_.presets) {
      const auto found = std::find_if(
          known.begin(), known.end(),
          [&](const ProfilePreset& each) { return each.step == preset.step; });
      if (found == known.end()) {
        group.classes.clear();
        return false;
      }
      const auto first =
          options_.basis->groups[index].classes.begin() +
          (found - known.begin()) * static_cast<ptrdiff_t>(group.components);
      group.classes.insert(group.classes.end(), first,
                           first + static_cast<ptrdiff_t>(group.components));
    }
    return true;
  }

  // How many groups have about as many layers each as is asked for.
  size_t CountGroups(size_t layers) const {
    const size_t wanted = options_.layers_per_group;
    if (wanted == 0) return 1;
    constexpr size_t kMostLayers = kMaxGroupTensors / 2;
    return std::max({(layers + wanted / 2) / wanted,
                     (layers + kMostLayers - 1) / kMostLayers, size_t{1}});
  }

  // Groups of consecutive layers of the first cache, which all others have.
  absl::Status MakeGroups() {
    for (TrainingCache* cache : caches_) {
      KVC_ASSIGN_OR_RETURN(ByPlace places, profile::PlacesOf(*cache));
      if (places.empty())
        return InvalidCache(*cache, "it has no keys or values");
      places_.push_back(std::move(places));
    }
    std::set<uint32_t> layers;
    for (const auto& [place, index] : places_[0]) layers.insert(place.first);
    const size_t groups = CountGroups(layers.size());
    std::optional<uint32_t> layer;
    size_t begun = 0;  // layers
    for (const auto& [place, index] : places_[0]) {
      const TensorSpec& spec = caches_[0]->tensors()[index];
      if (layer != place.first) {
        layer = place.first;
        // The first groups have one layer more where they cannot be equal.
        const size_t ended =
            (content_.groups.size() * layers.size() + groups - 1) / groups;
        if (begun++ == ended) content_.groups.emplace_back();
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

  // What the caches are recognised by, but those of a basis, which has its own.
  absl::Status MarkCaches() {
    if (options_.basis != nullptr) return absl::OkStatus();
    const ProfileTensor& first = content_.groups[0].tensors[0];
    for (size_t i = 0; i < std::min(caches_.size(), kMaxProfileCaches); ++i) {
      const auto place = places_[i].find(std::pair(first.layer, first.role));
      if (place == places_[i].end()) return Lacks(i, first);
      KVC_ASSIGN_OR_RETURN(const std::string bytes,
                           caches_[i]->Read(place->second));
      content_.caches.push_back(MarkOfCache(bytes));
    }
    return absl::OkStatus();
  }

  absl::Status Lacks(size_t cache, const ProfileTensor& tensor) const {
    return InvalidCache(
        *caches_[cache],
        absl::StrCat("it lacks a tensor of layer ", tensor.layer));
  }

  absl::StatusOr<GroupData> ReadGroup(size_t cache, size_t group) {
    GroupData data;
    for (const ProfileTensor& tensor : content_.groups[group].tensors) {
      const auto place =
          places_[cache].find(std::pair(tensor.layer, tensor.role));
      if (place == places_[cache].end()) return Lacks(cache, tensor);
      const TensorSpec& spec = caches_[cache]->tensors()[place->second];
      GroupShape shape;
      if (!profile::Fits(tensor, spec, &shape) ||
          (!data.bytes.empty() && (shape.batches != data.shape.batches ||
                                   shape.tokens != data.shape.tokens))) {
        return InvalidCache(*caches_[cache],
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
        return InvalidCache(*caches_[cache],
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
                                    /*first_position=*/0,
                                    /*checkpoint=*/nullptr);
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
    if (options_.basis != nullptr) {
      if (TakeClasses(index)) return absl::OkStatus();
      KVC_ASSIGN_OR_RETURN(const std::vector<float> variances,
                           FindVariances(index));
      return FindClasses(index, variances);
    }
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
    const size_t most =
        std::min<size_t>(options_.components, kMaxGroupComponents);
    absl::StatusOr<std::vector<float>> variances;
    if (options_.metric == nullptr) {
      variances =
          profile::FindBasis(covariance.Take(), units_,
                             options_.contract ? profile::TensorUnit::kBound
                                               : profile::TensorUnit::kSpread,
                             most, &group);
    } else {
      KVC_ASSIGN_OR_RETURN(const std::vector<profile::MetricBlock> metric,
                           profile::ReadMetric(options_.metric, group.tensors));
      variances = profile::FindMetricBasis(covariance.Take(), units_, metric,
                                           most, &group);
    }
    if (!variances.ok()) return variances.status();
    KVC_RETURN_IF_ERROR(Advance());
    return FindClasses(index, *variances);
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
    if (tokens == 0) return TooShort();
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

  // Calls `take(projected, count)` with the tokens of a group of a cache in the
  // components of the group.
  template <typename Take>
  absl::Status ForProjected(size_t cache, size_t index,
                            profile::Projector* projector, Take take) {
    std::vector<float> values;
    std::vector<float> projected;
    return ForTokens(
        cache, index, [&](absl::Span<const float> rows, size_t count) {
          values.assign(rows.begin(), rows.end());
          projected.resize(count * content_.groups[index].components);
          projector->Project(count, values.data(), projected.data());
          take(absl::MakeConstSpan(projected), count);
        });
  }

  std::shared_ptr<const profile::PreparedBasis> BasisOf(size_t index) const {
    return std::make_shared<const profile::PreparedBasis>(
        content_.groups[index], /*checkpoint=*/nullptr);
  }

  // Variances of the components of a given basis in the first cache.
  absl::StatusOr<std::vector<float>> FindVariances(size_t index) {
    const size_t components = content_.groups[index].components;
    profile::Projector projector(content_.groups[index], BasisOf(index),
                                 /*checkpoint=*/nullptr);
    std::vector<double> sums(components);
    size_t tokens = 0;
    KVC_RETURN_IF_ERROR(ForProjected(
        0, index, &projector,
        [&](absl::Span<const float> projected, size_t count) {
          for (size_t i = 0; i < projected.size(); ++i) {
            sums[i % components] += double{projected[i]} * projected[i];
          }
          tokens += count;
        }));
    if (tokens == 0) return TooShort();
    std::vector<float> variances(components);
    for (size_t j = 0; j < components; ++j) {
      variances[j] = static_cast<float>(sums[j] / static_cast<double>(tokens));
    }
    KVC_RETURN_IF_ERROR(Advance());
    return variances;
  }

  absl::Status TooShort() const {
    return InvalidCache(
        *caches_[0], absl::StrCat("it has no more than ", kSkipped, " tokens"));
  }

  absl::Status FindClasses(size_t index, const std::vector<float>& variances) {
    ProfileGroup& group = content_.groups[index];
    std::vector<profile::ClassFinder> finders;
    for (const ProfilePreset& preset : content_.presets) {
      finders.emplace_back(preset.step, variances);
    }
    profile::Projector projector(group, BasisOf(index),
                                 /*checkpoint=*/nullptr);
    for (size_t cache = 0; cache < caches_.size(); ++cache) {
      KVC_RETURN_IF_ERROR(
          ForProjected(cache, index, &projector,
                       [&](absl::Span<const float> projected, size_t count) {
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
