// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The decoder of every codec, with and without byte compressors: any payload is
// either refused or yields exactly the bytes of its tensor, however it is cut.

#include "decoding.h"
#include "input.h"
#include "kvcompress/codec.h"

namespace kvcompress::fuzz {
namespace {

void Fuzz(Input input) {
  const std::vector<CodecSpec>& codecs = StoredCodecs();
  const CodecSpec& codec = codecs[input.Byte() % codecs.size()];
  const TensorSpec spec = DrawSpec(&input);
  const uint8_t seed = input.Byte();
  // What a header that was checked lets through.
  const absl::StatusOr<uint64_t> most =
      codec.codec->MaxEncodedSize(spec, codec.parameters);
  if (!most.ok()) return;
  const absl::string_view payload = input.rest().substr(0, *most);
  DecodeEveryWay(codec, spec, payload, seed);
}

}  // namespace
}  // namespace kvcompress::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::fuzz::Fuzz({data, size});
  return 0;
}
