// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// From which tensor before it the encoder of a tensor learns, where a codec
// has encoders that do (Codec::learns): always the same one, whoever encodes
// it and when. Internal to the library.

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
  // Of these, and what its encoder found or, where it is a job, will find.
  struct Teacher {
    std::shared_ptr<EncodeJob> job;
    std::shared_ptr<const EncoderFindings> findings;
  };

  // The tensor that comes next, of such a spec. Gives from which one it learns:
  // null where it learns from none, and others from it.
  const Teacher* Next(const TensorSpec& spec) {
    Kind& kind = kinds_[{spec.role, spec.dtype, spec.shape}];
    teaching_ = kind.count++ % kPeriod == 0 ? &kind.teacher : nullptr;
    if (teaching_ == nullptr) return &kind.teacher;
    *teaching_ = Teacher();
    return nullptr;
  }

  // What others may learn from that tensor, if they do.
  void Teach(std::shared_ptr<EncodeJob> job) {
    if (teaching_ != nullptr) teaching_->job = std::move(job);
  }
  void Teach(std::shared_ptr<const EncoderFindings> findings) {
    if (teaching_ != nullptr) teaching_->findings = std::move(findings);
  }

 private:
  // One in so many learns from none: layers that follow each other are alike.
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
