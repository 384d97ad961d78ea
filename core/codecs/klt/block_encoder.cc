// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/block_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "codecs/ecsq/block_encoder.h"
#include "codecs/ecsq/format.h"
#include "codecs/ecsq/lists.h"
#include "codecs/ecsq/rans.h"
#include "codecs/ecsq/reconstruct.h"
#include "codecs/ecsq/symbol_writer.h"
#include "codecs/ecsq/tables.h"
#include "codecs/klt/reconstruct.h"
#include "dtype/elements.h"

namespace kvcompress::klt {
namespace {

using ecsq::SplitClass;

// Squared error, in squared steps, that a bit is worth.
constexpr float kErrorPerBit = 0.025f;
// Tokens that are finer than this, in quarter octaves, are not typical: they
// are rounded to the nearest, and left out of statistics.
constexpr int kFine = 12;
// The unit of loadings in steps for 512 tokens; it falls with their root's
// root, as the basis of more tokens is worth more bits.
constexpr double kLoadingUnit = 0.05;
constexpr int kFirstReflectorClass = 15;

void PutBytes(const void* bytes, size_t size, std::string* out) {
  out->append(static_cast<const char*>(bytes), size);
}

// Codes numbers under the table that suits them best; gives the table.
uint8_t PutNumbers(std::vector<int32_t> values, int32_t middle, int shift,
                   size_t lanes, ecsq::SymbolWriter* writer) {
  const ecsq::TableFit fit = ecsq::FitTable(values, middle, shift);
  for (int32_t& value : values) value = (value - middle) >> shift;
  writer->PutRows(values, fit.table, lanes);
  return static_cast<uint8_t>(fit.table);
}

int32_t MeanOf(absl::Span<const int32_t> values) {
  int64_t sum = 0;
  for (const int32_t value : values) sum += value;
  const int64_t count = static_cast<int64_t>(values.size());
  return static_cast<int32_t>((sum + count / 2) / count);
}

uint8_t ReflectorClass(absl::Span<const int32_t> integers) {
  double squares = 0;
  for (const int32_t k : integers) squares += static_cast<double>(k) * k;
  return static_cast<uint8_t>(
      ecsq::ClassOf(squares / static_cast<double>(integers.size())));
}

void PutReflectors(const std::vector<Reflectors>& groups, size_t lanes,
                   ecsq::SymbolWriter* writer, BlockHeader* sizes) {
  std::vector<int32_t> differences;
  std::vector<std::pair<int32_t, uint8_t>> integers;  // each with its class
  for (const Reflectors& reflectors : groups) {
    int before = kFirstReflectorClass;
    for (size_t j = 0; j < reflectors.count(); ++j) {
      const uint8_t klass = ReflectorClass(reflectors.Get(j));
      differences.push_back(klass - before);
      before = klass;
      for (const int32_t k : reflectors.Get(j)) integers.emplace_back(k, klass);
    }
  }
  if (differences.empty()) return;
  sizes->reflector_table = PutNumbers(differences, 0, 0, lanes, writer);
  for (size_t i = 0; i < integers.size(); ++i) {
    const SplitClass split(integers[i].second);
    writer->Put(i % lanes, split.table, integers[i].first, split.low_bits);
  }
}

}  // namespace

BlockEncoder::BlockEncoder(const TensorHeader& header, const Geometry& geometry,
                           const Block& block, const BlockChoices& choices,
                           DType dtype, BlockInput input,
                           absl::Span<const int8_t> offsets)
    : header_(header),
      geometry_(geometry),
      block_(block),
      choices_(choices),
      dtype_(dtype),
      input_(std::move(input)),
      channels_(geometry.channels()),
      all_channels_(geometry.Channels(block)),
      lanes_(std::min<size_t>(ecsq::kMaxLanes, all_channels_)),
      sinks_(header.Sinks(block)) {
  content_.offsets.assign(offsets.begin(), offsets.end());
  Normalize();
  MeasureChannels();
  FindBases();
  EncodeSinks();
}

bool BlockEncoder::IsOutside(size_t token) const {
  return token < sinks_ || content_.offsets[token] >= kFine;
}

void BlockEncoder::Normalize() {
  values_ = input_.values;
  for (const float value : values_) {
    largest_ = std::max<double>(largest_, std::abs(value));
  }
  if (!header_.norms) return;
  largest_ = 0;
  for (size_t row = 0; row < block_.heads * block_.tokens; ++row) {
    const absl::Span<float> token =
        absl::MakeSpan(values_).subspan(row * channels_, channels_);
    const uint16_t code = ecsq::NormCode(token);
    const float norm = ecsq::NormOf(code);
    content_.norms.push_back(code);
    norm_square_sum_ += static_cast<double>(norm) * norm;
    for (float& value : token) {
      value = code == 0 ? 0 : value / norm;
      largest_ = std::max<double>(largest_, std::abs(value));
    }
  }
}

void BlockEncoder::MeasureChannels() {
  means_.resize(all_channels_);
  for (size_t channel = 0; channel < all_channels_; ++channel) {
    double sum = 0;
    uint64_t count = 0;
    for (size_t t = 0; t < block_.tokens; ++t) {
      if (IsOutside(t)) continue;
      sum += values_[PositionOf(channel, t)];
      ++count;
    }
    if (count == 0) continue;
    means_[channel] = sum / static_cast<double>(count);
    for (size_t t = 0; t < block_.tokens; ++t) {
      if (IsOutside(t)) continue;
      const double difference =
          values_[PositionOf(channel, t)] - means_[channel];
      square_sum_ += difference * difference;
    }
    square_count_ += count;
  }
}

void BlockEncoder::FindBases() {
  std::vector<float> samples;
  for (size_t group = 0; group < geometry_.Groups(block_); ++group) {
    const size_t first = geometry_.GroupFirst(group);
    const size_t size = geometry_.GroupSize(block_, group);
    samples.clear();
    for (size_t t = 0; t < block_.tokens; ++t) {
      if (IsOutside(t)) continue;
      for (size_t i = first; i < first + size; ++i) {
        samples.push_back(
            static_cast<float>(values_[PositionOf(i, t)] - means_[i]));
      }
    }
    loadings_.push_back(FindLoadings(samples, size, choices_.vectors));
  }
}

void BlockEncoder::SetMeans() {
  content_.means.resize(all_channels_);
  const double unit = static_cast<double>(header_.step) / 8;
  for (size_t channel = 0; channel < all_channels_; ++channel) {
    content_.means[channel] = static_cast<int32_t>(std::clamp<double>(
        std::round(means_[channel] / unit), -ecsq::kMaxMean, ecsq::kMaxMean));
  }
}

void BlockEncoder::Transform(size_t group) {
  const double spread =
      std::pow(512.0 / static_cast<double>(block_.tokens), 0.25);
  content_.reflectors.push_back(
      MakeReflectors(loadings_[group], kLoadingUnit * spread * header_.step));
  const Matrix matrix = MakeMatrix(content_.reflectors.back());
  const size_t first = geometry_.GroupFirst(group);
  const size_t n = matrix.size;
  std::vector<float> rows(matrix.rows.begin(), matrix.rows.end());
  for (float& entry : rows) entry *= 0x1p-14f;
  const float mean_unit = header_.step * 0.125f;
  const float inverse_step = 1 / header_.step;
  std::vector<float> x(n);
  for (size_t t = sinks_; t < block_.tokens; ++t) {
    for (size_t i = 0; i < n; ++i) {
      const float mean =
          static_cast<float>(content_.means[first + i]) * mean_unit;
      x[i] = (values_[PositionOf(first + i, t)] - mean) * inverse_step;
    }
    for (size_t c = 0; c < n; ++c) {
      const float* const row = &rows[c * n];
      // Eight sums that do not wait for each other.
      float sums[8] = {};
      size_t i = 0;
      for (; i + 8 <= n; i += 8) {
        for (size_t k = 0; k < 8; ++k) sums[k] += row[i + k] * x[i + k];
      }
      for (; i < n; ++i) sums[0] += row[i] * x[i];
      const float product = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                            ((sums[4] + sums[5]) + (sums[6] + sums[7]));
      coefficients_[PositionOf(first + c, t)] = product;
      if (!IsOutside(t)) {
        variances_[first + c] += static_cast<double>(product) * product;
      }
    }
  }
}

void BlockEncoder::Quantize(size_t channel) {
  const double variance = square_count_ == 0
                              ? 0
                              : variances_[channel] *
                                    static_cast<double>(all_channels_) /
                                    static_cast<double>(square_count_);
  const int klass = ecsq::ClassOf(variance);
  for (size_t t = sinks_; t < block_.tokens; ++t) {
    const int offset = content_.offsets[t];
    const size_t position = PositionOf(channel, t);
    const float exact = coefficients_[position] / StepFactor(offset);
    const float bounded =
        std::clamp<float>(exact, -ecsq::kMaxQuantum, ecsq::kMaxQuantum);
    int32_t quantum =
        static_cast<int32_t>(bounded + (bounded < 0 ? -0.5f : 0.5f));
    if (offset < kFine) {
      quantum =
          Cheaper(exact, quantum, ClassAt(static_cast<uint8_t>(klass), offset));
    }
    content_.quanta[position] = quantum;
  }
  content_.classes.push_back(static_cast<uint8_t>(BestClass(channel, klass)));
}

// `nearest`, or its neighbour towards zero where that is worth its error.
int32_t BlockEncoder::Cheaper(float exact, int32_t nearest, int klass) const {
  if (nearest == 0) return 0;
  const SplitClass split(klass);
  const int32_t other = nearest > 0 ? nearest - 1 : nearest + 1;
  const auto loss = [&](int32_t quantum) {
    const float error = exact - static_cast<float>(quantum);
    const uint32_t bits = ecsq::GetTables().Cost(
        static_cast<size_t>(split.table), quantum >> split.low_bits);
    return error * error + static_cast<float>(bits) * (kErrorPerBit / 256);
  };
  return loss(other) < loss(nearest) ? other : nearest;
}

// The class near `klass` that codes the coefficients in fewest bits.
int BlockEncoder::BestClass(size_t channel, int klass) const {
  constexpr int kNearby = 3;
  std::map<std::pair<int, int32_t>, uint64_t> counts;  // by offset and quantum
  for (size_t t = sinks_; t < block_.tokens; ++t) {
    ++counts[{content_.offsets[t], content_.quanta[PositionOf(channel, t)]}];
  }
  int best = klass;
  uint64_t best_cost = ~uint64_t{0};
  const int last = std::min(klass + 1, ecsq::kClasses - 1);
  for (int k = std::max(0, klass - kNearby); k <= last; ++k) {
    uint64_t cost = 0;
    for (const auto& [key, count] : counts) {
      const SplitClass split(ClassAt(static_cast<uint8_t>(k), key.first));
      cost += count * (256u * static_cast<uint32_t>(split.low_bits) +
                       ecsq::GetTables().Cost(static_cast<size_t>(split.table),
                                              key.second >> split.low_bits));
    }
    if (cost < best_cost) {
      best_cost = cost;
      best = k;
    }
  }
  return best;
}

void BlockEncoder::EncodeSinks() {
  std::vector<float> token(channels_);
  for (size_t h = 0; h < block_.heads; ++h) {
    for (size_t t = 0; t < sinks_; ++t) {
      const size_t row = h * block_.tokens + t;
      LoadElements(dtype_,
                   input_.source.data() + row * channels_ * DTypeSize(dtype_),
                   absl::MakeSpan(token));
      const uint16_t scale = ecsq::Int8Scale::For(token);
      content_.sink_scales.push_back(scale);
      for (const float value : token) {
        content_.sink_codes.push_back(ecsq::Int8Scale::Quantize(value, scale));
      }
    }
  }
}

bool BlockEncoder::Encode(std::string* payload, uint8_t* decoded) {
  content_.classes.clear();
  content_.reflectors.clear();
  content_.quanta.assign(values_.size(), 0);
  coefficients_.assign(values_.size(), 0);
  variances_.assign(all_channels_, 0);
  SetMeans();
  for (size_t group = 0; group < geometry_.Groups(block_); ++group) {
    Transform(group);
  }
  for (size_t channel = 0; channel < all_channels_; ++channel) {
    Quantize(channel);
  }
  return Write(payload, decoded);
}

bool BlockEncoder::Write(std::string* payload, uint8_t* decoded) {
  BlockHeader sizes;
  ecsq::SymbolWriter writer(values_.size() + 4 * all_channels_);
  const std::vector<int32_t> classes(content_.classes.begin(),
                                     content_.classes.end());
  sizes.class_middle = static_cast<uint8_t>(MeanOf(classes));
  sizes.class_table =
      PutNumbers(classes, sizes.class_middle, 0, lanes_, &writer);

  int shift = 0;
  for (uint64_t cost = ecsq::FitTable(content_.means, 0, 0).cost;
       shift < ecsq::kMaxMeanShift; ++shift) {
    const uint64_t next = ecsq::FitTable(content_.means, 0, shift + 1).cost;
    if (next >= cost) break;
    cost = next;
  }
  sizes.mean_shift = static_cast<uint8_t>(shift);
  sizes.mean_table = PutNumbers(content_.means, 0, shift, lanes_, &writer);
  for (const int32_t mean : content_.means) writer.PutLowBits(mean, shift);

  if (header_.norms) {
    const std::vector<int32_t> norms(content_.norms.begin(),
                                     content_.norms.end());
    sizes.norm_middle = static_cast<uint16_t>(MeanOf(norms));
    sizes.norm_table = PutNumbers(norms, sizes.norm_middle, 0, lanes_, &writer);
  }

  std::vector<int32_t> differences;
  for (size_t t = 0; t < block_.tokens; ++t) {
    differences.push_back(content_.offsets[t] -
                          (t == 0 ? 0 : content_.offsets[t - 1]));
  }
  if (std::any_of(differences.begin(), differences.end(),
                  [](int32_t difference) { return difference != 0; })) {
    sizes.offset_table = PutNumbers(differences, 0, 0, lanes_, &writer);
  }

  PutReflectors(content_.reflectors, lanes_, &writer, &sizes);

  for (size_t first = 0; first < all_channels_; first += ecsq::kMaxLanes) {
    const size_t size = std::min(ecsq::kMaxLanes, all_channels_ - first);
    for (size_t t = sinks_; t < block_.tokens; ++t) {
      for (size_t lane = 0; lane < size; ++lane) {
        const size_t channel = first + lane;
        const SplitClass split(
            ClassAt(content_.classes[channel], content_.offsets[t]));
        writer.Put(lane, static_cast<size_t>(split.table),
                   content_.quanta[PositionOf(channel, t)], split.low_bits);
      }
    }
  }
  writer.Finish();
  const ecsq::RansStream stream = ecsq::RansEncode(writer.symbols(), lanes_);

  std::vector<float> values(values_.size());
  Reconstruct(header_, geometry_, block_, content_, absl::MakeSpan(values));
  StoreElements(dtype_, values, decoded);
  LoadElements(dtype_, decoded, absl::MakeSpan(values));
  const std::string patches = ecsq::Patch(
      dtype_, input_.source.data(), choices_.patch_error, values, decoded);

  const uint64_t size =
      kBlockHeaderSize + content_.reflectors.size() + 4 * stream.states.size() +
      2 * stream.words.size() + writer.escapes().size() +
      2 * content_.sink_scales.size() + content_.sink_codes.size() +
      patches.size() + writer.low_bits().size();
  if (size > MaxBlockSize(values.size())) return false;
  sizes.size = static_cast<uint32_t>(size);
  sizes.words = static_cast<uint32_t>(stream.words.size());
  sizes.escapes = static_cast<uint32_t>(writer.escapes().size());
  sizes.patches = static_cast<uint32_t>(patches.size());
  WriteBlockHeader(sizes, payload);
  for (const Reflectors& reflectors : content_.reflectors) {
    payload->push_back(static_cast<char>(reflectors.count()));
  }
  PutBytes(stream.states.data(), 4 * stream.states.size(), payload);
  PutBytes(stream.words.data(), 2 * stream.words.size(), payload);
  payload->append(writer.escapes());
  PutBytes(content_.sink_scales.data(), 2 * content_.sink_scales.size(),
           payload);
  PutBytes(content_.sink_codes.data(), content_.sink_codes.size(), payload);
  payload->append(patches);
  payload->append(writer.low_bits());
  return true;
}

}  // namespace kvcompress::klt
