// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The encoding end of codecs that look at a whole tensor. Internal to the
// library.

#ifndef KVCOMPRESS_CODECS_WHOLE_TENSOR_H_
#define KVCOMPRESS_CODECS_WHOLE_TENSOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvcompress/codec.h"
#include "kvcompress/metrics.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

struct EncodedTensor {
  std::string payload;
  std::string decoded;
  DistortionAccumulator distortion;
  std::vector<float> attention;  // see TensorEncoder
};

// Encodes the bytes of a tensor with elements, all of them finite.
using EncodeWhole = std::function<EncodedTensor(absl::string_view bytes)>;

// Collects a tensor, refuses values that are not finite as they come, and
// encodes it at its end. REQUIRES: the spec has `elements` elements of a
// compressible type.
std::unique_ptr<TensorEncoder> NewWholeTensorEncoder(std::string codec,
                                                     const TensorSpec& spec,
                                                     uint64_t elements,
                                                     EncodeWhole encode);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_WHOLE_TENSOR_H_
