// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// `klt-profile` and `lossless-profile`: what a manifest names tensors by that
// are coded in groups, with a profile. Asked for as `klt`, or `lossless`, and a
// profile; core/pipeline/groups.h encodes and decodes them. Internal to the
// library.

#ifndef KVCOMPRESS_PROFILE_CODEC_H_
#define KVCOMPRESS_PROFILE_CODEC_H_

#include "absl/strings/string_view.h"
#include "kvcompress/codec.h"

namespace kvcompress {

const Codec& KltProfileCodec();
const Codec& LosslessProfileCodec();

// Null for a name that is none of theirs.
const Codec* FindProfileCodec(absl::string_view name);

// One of them with a preset. REQUIRES: profile::IsPresetName(preset).
CodecSpec ProfileCodecSpec(const Codec& codec, absl::string_view preset);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PROFILE_CODEC_H_
