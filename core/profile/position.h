// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Where in a text a cache begins, found from its keys. For encoders only.
// Internal to the library.
//
// Keys have a mean before they are rotated by their position, and a profile
// knows it. Rotated by their place in the cache alone, keys at a position p
// have that mean rotated by p: the sum over all pairs of channels of what the
// two agree in is largest there (a matched filter).

#ifndef KVCOMPRESS_PROFILE_POSITION_H_
#define KVCOMPRESS_PROFILE_POSITION_H_

#include <complex>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/profile.h"
#include "profile/group_format.h"

namespace kvcompress::profile {

// Positions from here on are not looked for.
inline constexpr uint64_t kMaxFoundPosition = uint64_t{1} << 17;
// Keys that fit less than this are not like those of the training.
inline constexpr double kLeastFit = 0.5;

// Immutable.
class KeyPositions {
 public:
  // `sources` has the elements of each tensor of the group, all finite. Looks
  // at the first tokens of the first batch. Any when the checkpoint, which may
  // be null, stops.
  KeyPositions(const ProfileContent& content, size_t group,
               const GroupShape& shape,
               absl::Span<const absl::string_view> sources,
               Checkpoint* checkpoint);

  // Whether keys are rotated, by not too many frequencies, and have a mean that
  // is large enough compared with them: else nothing can be found.
  bool known() const { return expected_ > kLeastMean * energy_; }

  // How much the keys are like those of the training if the cache begins at
  // the position: about 1 where they are, about 0 for others. REQUIRES:
  // known().
  double FitAt(uint64_t position) const;

  // The position below kMaxFoundPosition that fits best. The first look is at
  // `likely`. Any when the checkpoint, which may be null, stops. REQUIRES:
  // known().
  uint64_t Find(uint64_t likely, Checkpoint* checkpoint) const;

 private:
  // What the keys and the means of a pair of channels agree in, summed over
  // tensors and heads.
  struct Pair {
    uint64_t increment = 0;  // in turns of 2^64
    std::complex<double> agreement;
  };

  // Part of the sum of squares of keys.
  static constexpr double kLeastMean = 0.05;

  struct Best {
    uint64_t position = 0;
    double agreement = 0;
  };

  double AgreementAt(uint64_t position) const;
  // Replaces `*best` by what is better of positions [begin, end).
  void Search(uint64_t begin, uint64_t end, Checkpoint* checkpoint,
              Best* best) const;

  std::vector<Pair> pairs_;
  double expected_ = 0;  // agreement with keys that are the means
  double most_ = 0;      // agreement at no position can be more
  double energy_ = 0;    // sum of squares of the rotated channels
};

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_POSITION_H_
