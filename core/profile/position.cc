// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/position.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "kernels/elements.h"
#include "profile/rotation.h"

namespace kvcompress::profile {
namespace {

// More tokens change little.
constexpr uint64_t kTokens = 256;
// The first tokens of a text are unlike others. Of few tokens all but one
// count.
constexpr uint64_t kSkipped = 4;
// Of the most that is possible: no other position can be so close.
constexpr double kSure = 0.98;
// Positions between looks at whether one is sure, and pairs in each of them
// between looks at the checkpoint.
constexpr uint64_t kStretch = 4096;
constexpr uint64_t kPairsAtOnce = uint64_t{1} << 20;
// Neighbours of the right position agree nearly as much.
constexpr uint64_t kNeighbours = 64;
// No model has so many: a profile may, and time goes with them.
constexpr size_t kMaxPairs = 8192;

std::complex<double> Turn(uint64_t phase) {
  return std::polar(
      1.0, std::ldexp(static_cast<double>(phase), -64) * 2 * std::numbers::pi);
}

}  // namespace

KeyPositions::KeyPositions(const ProfileContent& content, size_t group,
                           const GroupShape& shape,
                           absl::Span<const absl::string_view> sources,
                           Checkpoint* checkpoint) {
  const ProfileGroup& basis = content.groups[group];
  const uint64_t end = std::min(shape.tokens, kTokens);
  const uint64_t begin =
      end > 4 * kSkipped ? kSkipped : std::min<uint64_t>(1, end);
  const size_t count = end - begin;
  if (count == 0 || shape.batches == 0) return;
  std::map<std::pair<size_t, size_t>, std::complex<double>> agreements;
  std::vector<float> table;
  std::vector<float> pairs;
  std::vector<float> head;
  size_t column = 0;
  for (size_t i = 0; i < basis.tensors.size(); ++i) {
    const ProfileTensor& tensor = basis.tensors[i];
    const size_t first_column = column;
    column += tensor.width();
    if (!tensor.rotation) continue;
    const ProfileRotation& rotation = content.rotations[*tensor.rotation];
    FillTable(rotation, begin, count, &table);
    head.resize(count * tensor.channels);
    for (uint64_t h = 0; h < tensor.heads; ++h) {
      if (Stops(checkpoint)) return;
      const size_t offset = (h * shape.tokens + begin) * tensor.channels *
                            DTypeSize(shape.dtypes[i]);
      LoadElements(shape.dtypes[i],
                   reinterpret_cast<const uint8_t*>(sources[i].data()) + offset,
                   absl::MakeSpan(head));
      RotateHead(rotation, table.data(), count, tensor.channels, /*back=*/true,
                 &pairs, head.data());
      const float* const means =
          &basis.means[first_column + h * tensor.channels];
      const size_t turned = rotation.increments.size();
      for (size_t p = 0; p < turned; ++p) {
        const size_t one = rotation.interleaved ? 2 * p : p;
        const size_t other = rotation.interleaved ? one + 1 : p + turned;
        std::complex<double> sum;
        for (size_t t = 0; t < count; ++t) {
          const float* const row = &head[t * tensor.channels];
          const std::complex<double> key(row[one], row[other]);
          sum += key;
          energy_ += std::norm(key);
        }
        const std::complex<double> mean(means[one], means[other]);
        agreements[{*tensor.rotation, p}] += std::conj(mean) * sum;
        expected_ += static_cast<double>(count) * std::norm(mean);
      }
    }
  }
  if (agreements.size() > kMaxPairs) {
    expected_ = 0;
    return;
  }
  for (const auto& [place, agreement] : agreements) {
    pairs_.push_back(
        {content.rotations[place.first].increments[place.second], agreement});
    most_ += std::abs(agreement);
  }
}

double KeyPositions::AgreementAt(uint64_t position) const {
  double sum = 0;
  for (const Pair& pair : pairs_) {
    sum += (pair.agreement * std::conj(Turn(position * pair.increment))).real();
  }
  return sum;
}

double KeyPositions::FitAt(uint64_t position) const {
  return AgreementAt(position) / expected_;
}

uint64_t KeyPositions::Find(uint64_t likely, Checkpoint* checkpoint) const {
  Best best = {likely, AgreementAt(likely)};
  const auto is_sure = [&] { return best.agreement >= kSure * most_; };
  if (is_sure()) {
    // Perhaps a neighbour is meant.
    Search(likely - std::min(likely, kNeighbours), likely + kNeighbours,
           checkpoint, &best);
    return best.position;
  }
  for (uint64_t begin = 0; begin < kMaxFoundPosition; begin += kStretch) {
    if (Stops(checkpoint)) break;
    if (is_sure() && best.position + kNeighbours < begin) break;
    Search(begin, begin + kStretch, checkpoint, &best);
  }
  return best.position;
}

void KeyPositions::Search(uint64_t begin, uint64_t end, Checkpoint* checkpoint,
                          Best* best) const {
  const size_t count = pairs_.size();
  const uint64_t at_once = std::max<uint64_t>(1, kPairsAtOnce / (count + 1));
  std::vector<std::complex<double>> turned(count);
  std::vector<std::complex<double>> steps(count);
  for (size_t i = 0; i < count; ++i) {
    steps[i] = std::conj(Turn(pairs_[i].increment));
    turned[i] =
        pairs_[i].agreement * std::conj(Turn(begin * pairs_[i].increment));
  }
  for (uint64_t position = begin; position < end; ++position) {
    if ((position - begin) % at_once == at_once - 1 && Stops(checkpoint))
      return;
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      sum += turned[i].real();
      turned[i] *= steps[i];
    }
    if (sum > best->agreement) *best = {position, sum};
  }
}

}  // namespace kvcompress::profile
