// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/lighter_codecs.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kvcompress {

std::string LighterCodecs(const CodecTraits& traits) {
  if (traits.streaming) return "";
  std::vector<std::string> lighter;
  std::vector<std::string> streaming;
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& other = codec->traits();
    if (other.streaming) {
      streaming.push_back(other.name);
    } else if (other.tensor_memory < traits.tensor_memory) {
      lighter.push_back(absl::StrCat(other.name, " ", other.tensor_memory));
    }
  }
  std::string text = absl::StrCat(traits.name, " takes ", traits.tensor_memory,
                                  " bytes for each byte of the largest tensor");
  if (!lighter.empty()) {
    absl::StrAppend(&text, ", ", absl::StrJoin(lighter, ", "));
  }
  return absl::StrCat(text, "; ", absl::StrJoin(streaming, ", "),
                      " hold no tensor");
}

}  // namespace kvcompress
