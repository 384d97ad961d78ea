// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kvcompress/safetensors.h"

namespace kvcompress {
namespace {

// Whether a byte cannot be as it is in a string of JSON.
bool IsSpecial(char byte) {
  return static_cast<unsigned char>(byte) < 0x20 || byte == '"' || byte == '\\';
}

void AppendEscaped(char byte, std::string* json) {
  constexpr absl::string_view kBytes = "\"\\\b\f\n\r\t";
  constexpr absl::string_view kLetters = "\"\\bfnrt";
  const size_t known = kBytes.find(byte);
  if (known != absl::string_view::npos) {
    json->append({'\\', kLetters[known]});
  } else {
    absl::StrAppendFormat(json, "\\u%04x", static_cast<unsigned>(byte));
  }
}

}  // namespace

bool IsValidUtf8(absl::string_view text) {
  try {
    nlohmann::json(std::string(text)).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void AppendJsonString(absl::string_view text, std::string* json) {
  *json += '"';
  while (true) {
    const auto* const special =
        std::find_if(text.begin(), text.end(), IsSpecial);
    json->append(text.begin(), special);
    if (special == text.end()) break;
    AppendEscaped(*special, json);
    text.remove_prefix(special - text.begin() + 1);
  }
  *json += '"';
}

std::string SerializeSafetensorsHeader(const SafetensorsHeader& header,
                                       Checkpoint* checkpoint) {
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
  size_t written = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    if (StopsAt(written++, checkpoint)) break;
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
