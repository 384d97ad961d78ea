// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {

bool IsValidUtf8(absl::string_view text) {
  try {
    nlohmann::json(std::string(text)).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void AppendJsonString(absl::string_view text, std::string* json) {
  json->append(nlohmann::json(std::string(text)).dump());
}

std::string SerializeSafetensorsHeader(const SafetensorsHeader& header) {
  std::string out(8, '\0');
  out += '{';
  if (!header.metadata.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      if (out.back() != '{') out += ',';
      AppendJsonString(key, &out);
      out += ':';
      AppendJsonString(value, &out);
    }
    out += '}';
  }
  for (const SafetensorsEntry& entry : header.tensors) {
    if (out.back() != '{') out += ',';
    AppendJsonString(entry.spec.name, &out);
    absl::StrAppend(&out, ":{\"dtype\":\"", DTypeName(entry.spec.dtype),
                    "\",\"shape\":[", absl::StrJoin(entry.spec.shape, ","),
                    "],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  uint64_t length = out.size() - 8;
  for (size_t i = 0; i < 8; ++i, length >>= 8) {
    out[i] = static_cast<char>(length & 0xff);
  }
  return out;
}

}  // namespace kvcompress
