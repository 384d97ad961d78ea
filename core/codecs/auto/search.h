// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// How `auto` finds the codec of a tensor. Internal to the library.

#ifndef KVCOMPRESS_CODECS_AUTO_SEARCH_H_
#define KVCOMPRESS_CODECS_AUTO_SEARCH_H_

#include <memory>

#include "kvcompress/codec.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// An encoder that produces the output of the smallest candidate whose measured
// quality holds the thresholds: see auto.h. INVALID_ARGUMENT, from Finish,
// where none does or all refuse the values.
std::unique_ptr<TensorEncoder> NewAutoEncoder(const TensorSpec& spec,
                                              const EncodeHints& hints);

}  // namespace kvcompress

#endif  // KVCOMPRESS_CODECS_AUTO_SEARCH_H_
