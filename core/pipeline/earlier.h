// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The earlier tensor that is the source of an encoder's warm start, where the
// codec supports one (Codec::learns): always the same one, whoever encodes it
// and when. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_EARLIER_H_
#define KVCOMPRESS_PIPELINE_EARLIER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"
#include "pipeline/tensor_encoding.h"

namespace kvcompress {

// Not thread safe.
class EarlierTensors {
 public:
  // A source of warm starts: what its encoder found or, where it is a job, will
  // find.
  struct Teacher {
    std::shared_ptr<EncodeJob> job;
    std::shared_ptr<const EncoderFindings> findings;
  };

  // The tensor that comes next, of such a spec. Returns the source of its warm
  // start: null where it has none, and is the source for others.
  const Teacher* Next(const TensorSpec& spec) {
    Kind& kind = kinds_[{spec.role, spec.dtype, spec.shape}];
    teaching_ = kind.count++ % kPeriod == 0 ? &kind.teacher : nullptr;
    if (teaching_ == nullptr) return &kind.teacher;
    *teaching_ = Teacher();
    return nullptr;
  }

  // Records that tensor as the source for others, if it is one.
  void Teach(std::shared_ptr<EncodeJob> job) {
    if (teaching_ != nullptr) teaching_->job = std::move(job);
  }
  void Teach(std::shared_ptr<const EncoderFindings> findings) {
    if (teaching_ != nullptr) teaching_->findings = std::move(findings);
  }

 private:
  // One in so many has no source: layers that follow each other are alike.
  static constexpr uint64_t kPeriod = 8;

  struct Kind {
    uint64_t count = 0;
    Teacher teacher;
  };

  std::map<std::tuple<TensorRole, DType, std::vector<uint64_t>>, Kind> kinds_;
  Teacher* teaching_ = nullptr;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_EARLIER_H_
