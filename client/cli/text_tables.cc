// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
// More than 400 lines: a function for each table, of the same few parts.

#include "client/cli/text_tables.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/codec_flags.h"
#include "client/cli/columns.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;
using enum Columns::Side;

constexpr size_t kMaxMissed = 8;  // bounds that a table lists
std::string Text(const Json& value) {
  return Printable(value.get<std::string>());
}

// "14.9"; an SNR that is not known is that of an exact reconstruction.
std::string SnrText(const Json& snr) {
  return snr.is_null() ? "exact" : absl::StrFormat("%.1f", snr.get<double>());
}

std::string Decibels(const Json& snr) {
  return snr.is_null() ? "exact" : absl::StrCat(SnrText(snr), " dB");
}

// Of keys, without their channels' means; "-" where no key has one though
// something was lost.
std::string KeysSnr(const Json& json) {
  const Json& snr = json.at("centred_snr_db");
  return snr.is_null() && !json.at("snr_db").is_null() ? "-" : SnrText(snr);
}

// "keys' SNR 9.3 dB, SNR 14.9 dB", or the second alone where no key has one.
std::string SnrsText(const Json& json) {
  const Json& keys = json.at("centred_snr_db");
  return absl::StrCat(
      keys.is_null() ? "" : absl::StrCat("keys' SNR ", Decibels(keys), ", "),
      "SNR ", Decibels(json.at("snr_db")));
}

std::string SizeOf(const Json& json, const char* field) {
  return SizeText(json.at(field).get<uint64_t>());
}

std::string RatioOf(const Json& json) {
  return RatioText(json.at("compression_ratio").get<double>());
}

// Rows in the order of a number in each, those without one last.
std::vector<Json> SortedBy(const char* field, const Json& rows) {
  std::vector<Json> sorted(rows.begin(), rows.end());
  const auto number = [field](const Json& row) {
    const auto found = row.find(field);
    return found == row.end() || found->is_null()
               ? std::numeric_limits<double>::infinity()
               : found->get<double>();
  };
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [&](const Json& a, const Json& b) { return number(a) < number(b); });
  return sorted;
}

// "9 of 60" tensors that are within the thresholds.
std::string WithinText(const Json& json) {
  const auto count = json.at("tensor_count").get<uint64_t>();
  return absl::StrCat(count - json.at("tensors_failed").get<uint64_t>(), " of ",
                      count);
}

std::string ShapeText(const Json& shape) {
  std::vector<std::string> parts;
  for (const Json& dimension : shape) parts.push_back(dimension.dump());
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

std::string RolesText(const Json& roles) {
  return absl::StrFormat(
      "%d keys, %d values, %d neither", roles.at("keys").get<uint64_t>(),
      roles.at("values").get<uint64_t>(), roles.at("neither").get<uint64_t>());
}

std::string RoleText(const Json& tensor) {
  const Json& role = tensor.at("role");
  return role.is_null() ? "-" : Text(role);
}

std::string FilesText(const std::string& input, const std::string& output) {
  return output.empty()
             ? Printable(input)
             : absl::StrCat(Printable(input), " -> ", Printable(output));
}

// Names on the left, what they name on the right.
class Facts {
 public:
  void Add(std::string name, std::string fact) {
    columns_.AddRow({std::move(name), std::move(fact)});
  }
  std::string ToString() const { return columns_.ToString(); }

 private:
  Columns columns_{{kLeft, kLeft}};
};

// Whether a part alone was restored. All of a file is longer than its tensors,
// by its header.
bool IsPart(const Json& json) {
  const auto output = json.find("output_size_bytes");
  return output != json.end() && json.find("verified") == json.end() &&
         output->get<uint64_t>() <
             json.at("original_size_bytes").get<uint64_t>();
}

std::string SpeedText(const Json& json) {
  const double milliseconds = json.at("processing_time_ms").get<double>();
  const char* const size =
      IsPart(json) ? "output_size_bytes" : "original_size_bytes";
  const auto bytes = static_cast<double>(json.at(size).get<uint64_t>());
  return absl::StrFormat("%.0f ms, %.0f MB/s", milliseconds,
                         milliseconds > 0 ? bytes / 1e3 / milliseconds : 0);
}

void AddProfile(const Json& json, Facts* facts) {
  const Json& profile = json.at("profile");
  if (profile.is_null()) return;
  facts->Add("profile", Text(profile.at("label")));
  const auto expected = profile.find("expected");
  if (expected == profile.end()) return;
  facts->Add("damage", absl::StrCat(ShareText(*expected),
                                    " of int4's, measured in training"));
}

std::string CompressionTable(const std::string& files, const Json& json) {
  Facts facts;
  facts.Add("file", files);
  facts.Add("codec", Text(json.at("codec")));
  AddProfile(json, &facts);
  facts.Add("size", absl::StrFormat("%s -> %s, %s, %.2f bits per value",
                                    SizeOf(json, "original_size_bytes"),
                                    SizeOf(json, "compressed_size_bytes"),
                                    RatioOf(json),
                                    json.at("bits_per_value").get<double>()));
  facts.Add("quality",
            absl::StrFormat("%s: %s, RMSE %.4g, largest error %.4g",
                            Text(json.at("quality_level")), SnrsText(json),
                            json.at("rmse").get<double>(),
                            json.at("max_error").get<double>()));
  if (const Json& worst = json.at("worst_tensor"); !worst.is_null()) {
    facts.Add("worst tensor",
              absl::StrCat(Text(worst.at("name")), ": ", SnrsText(worst)));
  }
  facts.Add("tensors",
            absl::StrCat(WithinText(json), " within the thresholds; ",
                         RolesText(json.at("roles"))));
  size_t missed = 0;
  for (const Json& violation : json.at("violations")) {
    if (++missed <= kMaxMissed) facts.Add("missed", Text(violation));
  }
  if (missed > kMaxMissed) facts.Add("missed", "more, see -format json");
  facts.Add("time", SpeedText(json));
  std::string text = facts.ToString();
  if (!json.contains("tensors")) return text;
  Columns columns({kLeft, kLeft, kLeft, kRight, kRight, kLeft, kLeft});
  columns.AddRow({"tensor", "role", "codec", "bits", "SNR dB", "quality",
                  "within thresholds"});
  for (const Json& tensor : SortedBy("layer", json.at("tensors"))) {
    columns.AddRow(
        {Text(tensor.at("name")), RoleText(tensor), Text(tensor.at("codec")),
         absl::StrFormat("%.2f", tensor.at("bits_per_value").get<double>()),
         SnrText(tensor.at("snr_db")),
         tensor.at("quality_level").is_null()
             ? "-"
             : Text(tensor.at("quality_level")),
         tensor.at("passed").get<bool>() ? "yes" : "no"});
  }
  return absl::StrCat(text, "\n", columns.ToString());
}

std::string DecompressionTable(const std::string& files, const Json& json) {
  Facts facts;
  facts.Add("file", files);
  const auto verified = json.find("verified");
  if (verified != json.end()) {
    if (!verified->get<bool>()) {
      facts.Add("verified", "no: the artefact is damaged");
      facts.Add("why", Text(json.at("message")));
      return facts.ToString();
    }
    facts.Add("verified", "yes: every payload and checksum");
  }
  AddProfile(json, &facts);
  const std::string part =
      IsPart(json) ? absl::StrCat(SizeOf(json, "output_size_bytes"), " of ")
                   : "";
  facts.Add("size", absl::StrFormat("%s -> %s%s, %s",
                                    SizeOf(json, "compressed_size_bytes"), part,
                                    SizeOf(json, "original_size_bytes"),
                                    RatioOf(json)));
  const auto count = json.at("tensor_count").get<uint64_t>();
  facts.Add("tensors",
            verified != json.end()
                ? absl::StrFormat("%d, all decoded", count)
                : absl::StrFormat("%d of %d",
                                  json.at("tensors_selected").get<uint64_t>(),
                                  count));
  facts.Add("time", SpeedText(json));
  return facts.ToString();
}

void AddMetadata(const Json& json, Facts* facts) {
  for (const auto& [key, value] : json.items()) {
    facts->Add("metadata", absl::StrCat(Printable(key), "=", Text(value)));
  }
}

std::string ArtefactTable(const std::string& files, const Json& json) {
  Facts facts;
  facts.Add("file", files);
  facts.Add("format",
            absl::StrFormat("artefact, version %d",
                            json.at("format_version").get<uint64_t>()));
  AddProfile(json, &facts);
  facts.Add("size", absl::StrFormat("%s -> %s, %s, %.2f bits per value",
                                    SizeOf(json, "original_size_bytes"),
                                    SizeOf(json, "compressed_size_bytes"),
                                    RatioOf(json),
                                    json.at("bits_per_value").get<double>()));
  facts.Add("tensors", RolesText(json.at("roles")));
  std::map<std::string, uint64_t> codecs;
  for (const Json& tensor : json.at("tensors")) {
    ++codecs[Text(tensor.at("codec"))];
  }
  facts.Add("codecs", CodecCountsText(codecs));
  for (const auto& [key, value] : json.at("labels").items()) {
    facts.Add("label", absl::StrCat(Printable(key), "=", Text(value)));
  }
  AddMetadata(json.at("metadata"), &facts);
  Columns columns({kLeft, kLeft, kLeft, kLeft, kLeft, kRight, kRight});
  columns.AddRow({"tensor", "role", "type", "shape", "codec", "bytes", "bits"});
  for (const Json& tensor : SortedBy("layer", json.at("tensors"))) {
    columns.AddRow(
        {Text(tensor.at("name")), RoleText(tensor), Text(tensor.at("dtype")),
         ShapeText(tensor.at("shape")), Text(tensor.at("codec")),
         tensor.at("payload_size_bytes").dump(),
         absl::StrFormat("%.2f", tensor.at("bits_per_value").get<double>())});
  }
  return absl::StrCat(facts.ToString(), "\n", columns.ToString());
}

std::string PlainTable(const std::string& files, const Json& json) {
  Facts facts;
  facts.Add("file", files);
  facts.Add("format", "safetensors, not compressed");
  facts.Add("size", SizeOf(json, "original_size_bytes"));
  facts.Add("tensors", RolesText(json.at("roles")));
  const Json& layout = json.at("layout");
  facts.Add("layout", layout.is_null()
                          ? "bhtd, as nothing is declared"
                          : absl::StrCat(Text(layout), ", declared"));
  AddMetadata(json.at("metadata"), &facts);
  Columns columns({kLeft, kLeft, kLeft, kLeft, kRight, kLeft});
  columns.AddRow({"tensor", "role", "type", "shape", "bytes", "remarks"});
  for (const Json& tensor : SortedBy("layer", json.at("tensors"))) {
    std::vector<std::string> remarks;
    if (tensor.at("kept_bit_for_bit").get<bool>()) {
      remarks.push_back("kept bit for bit");
    }
    if (const Json& likely = tensor.at("likely_layout"); !likely.is_null()) {
      remarks.push_back(absl::StrCat("looks like ", Text(likely)));
    }
    columns.AddRow({Text(tensor.at("name")), RoleText(tensor),
                    Text(tensor.at("dtype")), ShapeText(tensor.at("shape")),
                    tensor.at("original_size_bytes").dump(),
                    absl::StrJoin(remarks, "; ")});
  }
  return absl::StrCat(facts.ToString(), "\n", columns.ToString());
}

bool IsPlain(const Json& info) { return info.at("format") == "safetensors"; }

std::string CodecCell(const Json& row) {
  const Json& profile = row.at("profile");
  return profile.is_null()
             ? Text(row.at("codec"))
             : absl::StrCat(Text(row.at("codec")), " (", Text(profile), ")");
}

std::string SpeedCell(const Json& speed) {
  return speed.is_null() ? "-" : absl::StrFormat("%.0f", speed.get<double>());
}

}  // namespace

std::string ShareText(const Json& expectation) {
  const auto number = [&](const char* name) {
    return expectation.at(name).get<double>();
  };
  std::string text = absl::StrFormat(
      "%.0f %%", 100 * number("divergence") / number("int4_divergence"));
  if (number("most_share") > 0) {
    absl::StrAppendFormat(&text, " (%.0f to %.0f %%)",
                          100 * number("least_share"),
                          100 * number("most_share"));
  }
  return text;
}

std::string ResultTable(Mode mode, const std::string& input,
                        const std::string& output, const Json& json) {
  const std::string files = FilesText(input, output);
  switch (mode) {
    case Mode::kInfo:
      return IsPlain(json) ? PlainTable(files, json)
                           : ArtefactTable(files, json);
    case Mode::kDecompress:
    case Mode::kVerify:
      return DecompressionTable(files, json);
    default:
      return CompressionTable(files, json);
  }
}

std::string ComparisonTable(const Json& json) {
  Columns columns({kLeft, kRight, kRight, kRight, kRight, kRight, kRight});
  columns.AddRow({"codec", "ratio", "keys SNR dB", "SNR dB", "within bounds",
                  "compress MB/s", "restore MB/s"});
  std::string errors;
  for (const Json& row : SortedBy("compression_ratio", json.at("codecs"))) {
    if (row.contains("error")) {
      columns.AddRow({CodecCell(row), "failed"});
      absl::StrAppend(&errors, CodecCell(row), ": ",
                      Text(row.at("error").at("message")), "\n");
      continue;
    }
    columns.AddRow({CodecCell(row), RatioOf(row), KeysSnr(row),
                    SnrText(row.at("snr_db")),
                    absl::StrCat(row.at("tensors_within_bounds").dump(), " of ",
                                 row.at("tensor_count").dump()),
                    SpeedCell(row.at("compress_mb_per_second")),
                    SpeedCell(row.at("restore_mb_per_second"))});
  }
  const Json& best = json.at("smallest_within_bounds");
  const std::string verdict =
      best.is_null()
          ? "None of them holds the bounds on every tensor."
          : absl::StrCat(
                "Smallest within the bounds on every tensor: ", CodecCell(best),
                ", ", RatioOf(best), "\nWithout -codec, compress uses ",
                kDefaultCodec, " at effort fast, which is quicker and larger.");
  return absl::StrCat(
      Printable(json.at("input").get<std::string>()), "; bounds: ",
      json.at("bounds") == "requested" ? "those of the flags"
                                       : "the default thresholds",
      "\n\n", columns.ToString(), "\n", errors, verdict, "\n");
}

std::string BatchHeading(Mode mode) {
  switch (mode) {
    case Mode::kInfo:
      return absl::StrFormat("%-11s  %7s  %7s  %7s  %9s  %s\n", "format",
                             "tensors", "keys", "values", "size", "file");
    case Mode::kDecompress:
    case Mode::kVerify:
      return absl::StrFormat("%-8s  %7s  %9s  %s\n", "result", "ratio", "size",
                             "file");
    default:
      return absl::StrFormat("%7s  %11s  %6s  %17s  %9s  %s\n", "ratio",
                             "keys SNR dB", "SNR dB", "within thresholds",
                             "size", "file");
  }
}

std::string BatchRow(Mode mode, const std::string& input, const Json& json) {
  const std::string name = Printable(input);
  const bool failed = json.is_null() || (mode == Mode::kVerify &&
                                         !json.at("verified").get<bool>());
  switch (mode) {
    case Mode::kInfo:
      if (failed) return absl::StrFormat("%-11s  %37s%s\n", "failed", "", name);
      return absl::StrFormat(
          "%-11s  %7d  %7d  %7d  %9s  %s\n", Text(json.at("format")),
          json.at("tensor_count").get<uint64_t>(),
          json.at("roles").at("keys").get<uint64_t>(),
          json.at("roles").at("values").get<uint64_t>(),
          SizeOf(json, IsPlain(json) ? "original_size_bytes"
                                     : "compressed_size_bytes"),
          name);
    case Mode::kDecompress:
    case Mode::kVerify:
      if (failed) return absl::StrFormat("%-8s  %20s%s\n", "failed", "", name);
      return absl::StrFormat("%-8s  %7s  %9s  %s\n",
                             mode == Mode::kVerify ? "verified" : "restored",
                             RatioOf(json), SizeOf(json, "original_size_bytes"),
                             name);
    default:
      if (failed) return absl::StrFormat("%7s  %49s%s\n", "failed", "", name);
      return absl::StrFormat("%7s  %11s  %6s  %17s  %9s  %s\n", RatioOf(json),
                             KeysSnr(json), SnrText(json.at("snr_db")),
                             WithinText(json),
                             SizeOf(json, "compressed_size_bytes"), name);
  }
}

}  // namespace kvcompress::cli
