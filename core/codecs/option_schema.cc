// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/option_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvcompress/error.h"
#include "kvcompress/nearest_name.h"

namespace kvcompress {
namespace {

constexpr uint64_t kUnits = 10000;  // of one: four digits after the point
constexpr double kMaxNumber = 999999999;
// Two spellings of a number differ by rounding at most.
constexpr double kSameNumber = 1e-9;

// "0.5": no zeros that could be left out.
std::string NumberText(double value) {
  const auto units =
      static_cast<uint64_t>(std::llround(value * static_cast<double>(kUnits)));
  std::string text = absl::StrCat(units / kUnits);
  if (units % kUnits != 0) {
    absl::StrAppend(&text, ".", absl::Dec(units % kUnits, absl::kZeroPad4));
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text;
}

std::string ValueText(const CodecOption& option, double value) {
  if (option.type != CodecOption::Type::kBoolean) return NumberText(value);
  return value != 0 ? "true" : "false";
}

// "32, 64 or 128".
std::string Listed(const std::vector<std::string>& items) {
  if (items.size() < 2) return absl::StrJoin(items, "");
  return absl::StrCat(absl::StrJoin(items.begin(), items.end() - 1, ", "),
                      " or ", items.back());
}

// A number in any decimal spelling; nothing for other text, and where more
// digits are given than the canonical text has.
std::optional<double> ParseNumber(absl::string_view text) {
  double value = 0;
  if (text.find_first_not_of("0123456789.eE+-") != text.npos ||
      !absl::SimpleAtod(text, &value) || !(value >= 0 && value <= kMaxNumber)) {
    return std::nullopt;
  }
  const auto scale = static_cast<double>(kUnits);
  const double number = std::round(value * scale) / scale;
  if (std::abs(value - number) > kSameNumber) return std::nullopt;
  return number;
}

std::optional<double> ParseValue(const CodecOption& option,
                                 absl::string_view text) {
  if (option.type == CodecOption::Type::kBoolean) {
    if (text == "true") return 1;
    if (text == "false") return 0;
    return std::nullopt;
  }
  const std::optional<double> number = ParseNumber(text);
  if (!number) return std::nullopt;
  if (option.type == CodecOption::Type::kInteger &&
      *number != std::floor(*number)) {
    return std::nullopt;
  }
  const bool taken =
      option.values.empty()
          ? *number >= option.least && *number <= option.most
          : std::count(option.values.begin(), option.values.end(), *number) > 0;
  return taken ? number : std::nullopt;
}

// Reads the items of one text.
class Parser {
 public:
  Parser(absl::string_view codec, const std::vector<CodecOption>& options,
         const std::vector<std::string>& presets)
      : codec_(codec), options_(options), presets_(presets) {
    result_.values.resize(options.size());
  }

  absl::StatusOr<OptionValues> Parse(absl::string_view text) {
    if (text.empty() && !presets_.empty()) text = presets_[0];
    const auto preset = std::find(presets_.begin(), presets_.end(), text);
    if (preset != presets_.end()) {
      result_.preset = preset - presets_.begin();
      result_.canonical_text = std::string(text);
      return std::move(result_);
    }
    if (!text.empty()) {
      for (const absl::string_view item : absl::StrSplit(text, ',')) {
        KVC_RETURN_IF_ERROR(TakeItem(item));
      }
    }
    KVC_RETURN_IF_ERROR(CheckRequired());
    result_.canonical_text = Write();
    for (size_t i = 0; i < options_.size(); ++i) {
      if (!result_.values[i]) result_.values[i] = options_[i].default_value;
    }
    return std::move(result_);
  }

 private:
  absl::Status TakeItem(absl::string_view item) {
    const size_t equals = item.find('=');
    if (equals == absl::string_view::npos) return TakePositional(item);
    named_ = true;
    const absl::string_view name = item.substr(0, equals);
    for (size_t i = 0; i < options_.size(); ++i) {
      if (options_[i].name == name) return Set(i, item.substr(equals + 1));
    }
    std::vector<std::string> names;
    for (const CodecOption& option : options_) names.push_back(option.name);
    return Refuse(absl::StrCat(codec_, " has no option ", QuoteName(name)),
                  DidYouMean(name, names));
  }

  absl::Status TakePositional(absl::string_view item) {
    if (std::count(presets_.begin(), presets_.end(), item) > 0) {
      return Refuse(absl::StrCat(codec_, ": the preset ", QuoteName(item),
                                 " stands alone, without other values"));
    }
    const bool is_word = !item.empty() && absl::ascii_isalpha(item[0]);
    if (is_word && position_ == 0 && !named_) {
      return Refuse(absl::StrCat(codec_, " has no preset ", QuoteName(item)),
                    DidYouMean(item, presets_));
    }
    if (named_) {
      return Refuse(absl::StrCat(codec_, ": the value ", QuoteName(item),
                                 " without a name comes after one with"));
    }
    if (position_ == options_.size() ||
        options_[position_].type == CodecOption::Type::kBoolean) {
      return Refuse(absl::StrCat(codec_, " has no option for the value ",
                                 QuoteName(item), " at position ",
                                 position_ + 1));
    }
    return Set(position_++, item);
  }

  absl::Status Set(size_t index, absl::string_view text) {
    const CodecOption& option = options_[index];
    if (result_.values[index]) {
      return Refuse(absl::StrCat(codec_, ": ", option.name, " is given twice"));
    }
    result_.values[index] = ParseValue(option, text);
    if (result_.values[index]) return absl::OkStatus();
    return Refuse(absl::StrCat(codec_, ": ", option.name, " is ",
                               QuoteName(text), ", but must be ",
                               option.Range()));
  }

  absl::Status CheckRequired() const {
    for (size_t i = 0; i < options_.size(); ++i) {
      if (!options_[i].required || result_.values[i]) continue;
      return Refuse(absl::StrCat(codec_, ": ", options_[i].name,
                                 " is missing, which must be ",
                                 options_[i].Range()));
    }
    return absl::OkStatus();
  }

  // Values in the order of the options; without their names up to the first
  // that is left out, and but for booleans.
  std::string Write() const {
    std::vector<std::string> items;
    bool named = false;
    for (size_t i = 0; i < options_.size(); ++i) {
      const CodecOption& option = options_[i];
      std::optional<double> value = result_.values[i];
      if (!value && option.always_written) value = option.default_value;
      named |= !value || option.type == CodecOption::Type::kBoolean;
      if (!value) continue;
      const std::string text = ValueText(option, *value);
      items.push_back(named ? absl::StrCat(option.name, "=", text) : text);
    }
    return absl::StrJoin(items, ",");
  }

  absl::Status Refuse(absl::string_view what,
                      absl::string_view suggestion = "") const {
    std::string remedy = absl::StrCat("; it takes ", DescribeOptions(options_));
    if (!presets_.empty()) {
      absl::StrAppend(&remedy, ", or a preset: ", Listed(presets_));
    }
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat(what, remedy, suggestion),
        {.reason = "INVALID_CODEC_OPTION", .field = "options.codec"});
  }

  const absl::string_view codec_;
  const std::vector<CodecOption>& options_;
  const std::vector<std::string>& presets_;
  OptionValues result_;
  size_t position_ = 0;  // of the next value without a name
  bool named_ = false;   // whether one with a name was there
};

}  // namespace

std::string CodecOption::Range() const {
  if (type == Type::kBoolean) return "true or false";
  if (!values.empty()) return Listed(ValueTexts());
  const std::string range =
      absl::StrCat("from ", NumberText(least), " to ", NumberText(most));
  return type == Type::kInteger
             ? absl::StrCat("an integer ", range)
             : absl::StrCat("a number ", range,
                            " with at most four digits after the point");
}

std::vector<std::string> CodecOption::ValueTexts() const {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(NumberText(value));
  return texts;
}

std::string CodecOption::DefaultText() const {
  return default_value ? ValueText(*this, *default_value) : "";
}

absl::StatusOr<OptionValues> ParseOptions(
    absl::string_view codec, const std::vector<CodecOption>& options,
    const std::vector<std::string>& presets, absl::string_view text) {
  return Parser(codec, options, presets).Parse(text);
}

std::string DescribeOptions(const std::vector<CodecOption>& options) {
  if (options.empty()) return "no options";
  return absl::StrJoin(
      options, ", ", [](std::string* out, const CodecOption& option) {
        absl::StrAppend(out, option.name, " (", option.Range());
        if (option.default_value) {
          absl::StrAppend(out, "; default ", option.DefaultText());
        }
        absl::StrAppend(out, ")");
      });
}

CodecOption GroupSizeOption() {
  return {.name = "group_size",
          .values = {32, 64, 128},
          .default_value = 64,
          .always_written = true,
          .description = "Elements that share a scale"};
}

}  // namespace kvcompress
