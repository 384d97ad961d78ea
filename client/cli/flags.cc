// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/flags.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/bench_flags.h"
#include "client/cli/codec_flags.h"
#include "client/cli/model_config.h"
#include "client/cli/profile_flags.h"
#include "client/cli/raw_flags.h"
#include "client/cli/thresholds.h"

namespace kvcompress::cli {
namespace {

absl::Status SetThreads(const RawFlags& raw, Flags* flags) {
  if (!raw.threads) return absl::OkStatus();
  if (!raw.server.empty()) {
    return absl::InvalidArgumentError(
        "-threads and -server cannot be combined: a server has threads of its "
        "own");
  }
  if (flags->mode == Mode::kTrain || flags->mode == Mode::kInfo) {
    return absl::InvalidArgumentError(
        "-threads needs compression, -metrics-only, decoding or -verify");
  }
  return SetCount(raw.threads, "threads", 1, 1024, &flags->threads);
}

absl::Status SetMode(const RawFlags& raw, Flags* flags) {
  const int modes = raw.decompress + raw.metrics_only + raw.info.has_value() +
                    raw.verify.has_value() + raw.compare.has_value() +
                    raw.train_profile.has_value();
  if (modes > 1) {
    return absl::InvalidArgumentError(
        "-decompress, -metrics-only, -info, -verify, -compare and "
        "-train-profile cannot be combined");
  }
  if (raw.decompress) flags->mode = Mode::kDecompress;
  if (raw.metrics_only) flags->mode = Mode::kMeasure;
  if (raw.info) flags->mode = Mode::kInfo;
  if (raw.verify) flags->mode = Mode::kVerify;
  if (raw.compare) flags->mode = Mode::kCompare;
  if (raw.train_profile) flags->mode = Mode::kTrain;
  if (raw.bench) flags->mode = Mode::kBench;
  return absl::OkStatus();
}

absl::Status SetTrainedFile(const RawFlags& raw, Flags* flags) {
  if (!raw.input.empty() || !raw.output.value_or("").empty()) {
    return absl::InvalidArgumentError(
        "-train-profile names its file itself, and takes caches behind the "
        "flags, without -input and -output");
  }
  if (raw.train_profile->empty()) {
    return absl::InvalidArgumentError("-train-profile needs a file");
  }
  flags->output = *raw.train_profile;
  return absl::OkStatus();
}

absl::Status SetFiles(const RawFlags& raw, Flags* flags) {
  if (absl::Status status = SetMode(raw, flags); !status.ok()) return status;
  if (raw.train_profile) return SetTrainedFile(raw, flags);
  if (raw.bench) return SetBenchFile(raw, flags);
  const std::optional<std::string>& named = raw.info     ? raw.info
                                            : raw.verify ? raw.verify
                                                         : raw.compare;
  if (named && !raw.input.empty()) {
    return absl::InvalidArgumentError(
        "-info, -verify and -compare name their file themselves, without "
        "-input");
  }
  if (raw.compare && !raw.output.value_or("").empty()) {
    return absl::InvalidArgumentError(
        "-compare writes nothing: leave out -output");
  }
  if (!raw.files.empty() && !raw.input.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument: ", raw.files[0]));
  }
  flags->several = raw.input.empty();
  if (named || !raw.input.empty()) {
    flags->inputs.push_back(named ? *named : raw.input);
  }
  flags->inputs.insert(flags->inputs.end(), raw.files.begin(), raw.files.end());
  flags->output = raw.output.value_or("");
  if (flags->inputs.empty() || flags->inputs[0].empty()) {
    return absl::InvalidArgumentError("-input is required");
  }
  flags->input = flags->inputs[0];
  const bool writes = Writes(flags->mode);
  // An empty name is a mistake, such as of a variable that is not set.
  if (writes && flags->output.empty() && raw.output) {
    return absl::InvalidArgumentError("-output is required");
  }
  if (writes && flags->output.empty() && flags->inputs.size() == 1 &&
      flags->input == "-") {
    flags->output = "-";
  }
  return absl::OkStatus();
}

// Whether -codec is a list, of whole codec strings.
bool ListsCodecs(Mode mode) {
  return mode == Mode::kCompare || mode == Mode::kBench;
}

// Refuses new flags that would do nothing. Those of the Go program are not
// refused where it took them.
absl::Status CheckMode(const RawFlags& raw, Mode mode) {
  const auto need = [](absl::string_view flag, absl::string_view modes) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " needs ", modes));
  };
  if (mode != Mode::kDecompress) {
    if (!raw.tensors.empty()) return need("-tensors", "-decompress");
    if (raw.tokens) return need("-tokens", "-decompress");
    if (raw.order) return need("-order", "-decompress");
  }
  const bool lists_codecs = ListsCodecs(mode);
  if (mode != Mode::kCompress && mode != Mode::kMeasure && !lists_codecs) {
    constexpr absl::string_view kModes =
        "compression, -metrics-only or -compare";
    if (!raw.codec.empty()) return need("-codec", kModes);
    if (!raw.preset.empty()) return need("-preset", kModes);
    if (raw.min_snr_db) return need("-min-snr-db", kModes);
    if (raw.thresholds) return need("-thresholds", kModes);
    if (raw.key_thresholds) return need("-key-thresholds", kModes);
    if (raw.value_thresholds) return need("-value-thresholds", kModes);
    if (raw.rope_theta && mode != Mode::kTrain) {
      return need("-rope-theta", kModes);
    }
    if (raw.rope) return need("-rope", kModes);
    if (raw.model_config) return need("-model-config", kModes);
    if (raw.effort) return need("-effort", kModes);
    if (raw.block_tokens) return need("-block-tokens", kModes);
    if (raw.metrics) return need("-metrics", kModes);
    if (raw.layout) return need("-layout", kModes);
    if (!raw.last_stage.empty()) return need("-last-stage", kModes);
  }
  if (mode == Mode::kDecompress || mode == Mode::kVerify) {
    constexpr absl::string_view kModes = "compression, -metrics-only or -info";
    if (!raw.keys.empty()) return need("-keys", kModes);
    if (!raw.values.empty()) return need("-values", kModes);
  }
  if (lists_codecs && (!raw.preset.empty() || !raw.last_stage.empty() ||
                       raw.group_size || raw.sparsity)) {
    return absl::InvalidArgumentError(
        absl::StrCat(raw.bench ? "bench" : "-compare",
                     " takes whole codec strings, such as -codec "
                     "\"int4:32+zstd klt:high\", without -preset, "
                     "-group-size, -sparsity and -last-stage"));
  }
  if ((mode == Mode::kInfo || mode == Mode::kTrain || lists_codecs) &&
      !raw.labels.empty()) {
    return need("-label", "compression or decoding");
  }
  return absl::OkStatus();
}

absl::Status SetNumbers(const RawFlags& raw, Flags* flags) {
  if (raw.rope_theta) {
    double base;
    if (!absl::SimpleAtod(*raw.rope_theta, &base) || !std::isfinite(base)) {
      return InvalidValue(*raw.rope_theta, "rope-theta",
                          "must be a finite number");
    }
    flags->rope_theta = base;
  }
  if (raw.layout) flags->layout = *raw.layout;
  return absl::OkStatus();
}

absl::Status SetRope(const RawFlags& raw, Flags* flags) {
  if (raw.rope_theta.has_value() + raw.rope.has_value() +
          raw.model_config.has_value() >
      1) {
    return absl::InvalidArgumentError(
        "-rope-theta, -rope and -model-config say the same: give one of them");
  }
  if (!raw.rope && !raw.model_config) return absl::OkStatus();
  absl::StatusOr<v1::RopeParameters> rope =
      raw.rope ? ParseModelConfig(*raw.rope)
               : ReadModelConfig(*raw.model_config);
  if (!rope.ok()) {
    return InvalidValue(raw.rope ? *raw.rope : *raw.model_config,
                        raw.rope ? "rope" : "model-config",
                        rope.status().message());
  }
  flags->rope = *std::move(rope);
  flags->model_config = raw.model_config.value_or("");
  return absl::OkStatus();
}

absl::Status SetBounds(const RawFlags& raw, Flags* flags) {
  const auto set = [](const std::optional<std::string>& text,
                      absl::string_view flag,
                      std::optional<v1::QualityThresholds>* bounds) {
    if (!text) return absl::OkStatus();
    absl::StatusOr<v1::QualityThresholds> parsed = ParseThresholds(*text);
    if (!parsed.ok()) {
      return InvalidValue(*text, flag, parsed.status().message());
    }
    *bounds = *std::move(parsed);
    return absl::OkStatus();
  };
  absl::Status status = set(raw.thresholds, "thresholds", &flags->thresholds);
  status.Update(
      set(raw.key_thresholds, "key-thresholds", &flags->key_thresholds));
  status.Update(
      set(raw.value_thresholds, "value-thresholds", &flags->value_thresholds));
  if (!status.ok() || !raw.min_snr_db) return status;
  double bound;
  if (!absl::SimpleAtod(*raw.min_snr_db, &bound) || !std::isfinite(bound)) {
    return InvalidValue(*raw.min_snr_db, "min-snr-db",
                        "must be a finite number");
  }
  if (!flags->thresholds) flags->thresholds.emplace();
  if (flags->thresholds->has_min_snr_db()) {
    return absl::InvalidArgumentError(
        "-min-snr-db and min_snr_db of -thresholds cannot be combined");
  }
  flags->thresholds->set_min_snr_db(bound);
  return absl::OkStatus();
}

absl::Status SetEffort(const RawFlags& raw, Flags* flags) {
  if (!raw.effort) return absl::OkStatus();
  if (*raw.effort == "fast") {
    flags->effort = v1::EFFORT_FAST;
  } else if (*raw.effort == "balanced") {
    flags->effort = v1::EFFORT_BALANCED;
  } else if (*raw.effort == "best") {
    flags->effort = v1::EFFORT_BEST;
  } else {
    return InvalidValue(*raw.effort, "effort",
                        "must be fast, balanced or best");
  }
  return absl::OkStatus();
}

absl::Status SetMetrics(const RawFlags& raw, Flags* flags) {
  if (!raw.metrics) return absl::OkStatus();
  if (*raw.metrics == "basic") {
    flags->metrics = v1::METRICS_LEVEL_BASIC;
  } else if (*raw.metrics == "full") {
    flags->metrics = v1::METRICS_LEVEL_FULL;
  } else {
    return InvalidValue(*raw.metrics, "level of metrics",
                        "must be basic or full");
  }
  return absl::OkStatus();
}

absl::Status SetTls(const RawFlags& raw, Flags* flags) {
  if (raw.tls_cert.empty() != raw.tls_key.empty()) {
    return absl::InvalidArgumentError("-tls-cert and -tls-key go together");
  }
  if (raw.tls_ca.empty() && !raw.tls_cert.empty()) {
    return absl::InvalidArgumentError("-tls-cert needs -tls-ca");
  }
  if (!raw.tls_ca.empty() && raw.server.empty()) {
    return absl::InvalidArgumentError("-tls-ca needs -server");
  }
  flags->tls_ca = raw.tls_ca;
  flags->tls_cert = raw.tls_cert;
  flags->tls_key = raw.tls_key;
  return absl::OkStatus();
}

absl::Status SetPrinting(const RawFlags& raw, Flags* flags) {
  flags->quiet = raw.quiet;
  flags->force = raw.force;
  if (raw.format == "json") {
    flags->format = Format::kJson;
  } else if (raw.format == "table") {
    flags->format = Format::kTable;
  } else if (raw.format) {
    return InvalidValue(*raw.format, "format", "must be json or table");
  }
  if (raw.json && flags->format == Format::kTable) {
    return absl::InvalidArgumentError(
        "-json and -format table cannot be combined");
  }
  if (raw.json) flags->format = Format::kJson;
  if (raw.quiet && raw.progress && raw.progress != "never") {
    return absl::InvalidArgumentError(
        "-quiet and -progress cannot be combined");
  }
  if (raw.quiet) flags->progress = ProgressMode::kNever;
  return absl::OkStatus();
}

absl::Status SetProgress(const RawFlags& raw, Flags* flags) {
  if (!raw.progress || raw.progress == "auto") return absl::OkStatus();
  if (raw.progress == "always") {
    flags->progress = ProgressMode::kAlways;
  } else if (raw.progress == "never") {
    flags->progress = ProgressMode::kNever;
  } else {
    return InvalidValue(*raw.progress, "progress",
                        "must be auto, always or never");
  }
  return absl::OkStatus();
}

absl::Status SetSelection(const RawFlags& raw, Flags* flags) {
  flags->tensors = raw.tensors;
  flags->key_patterns = raw.keys;
  flags->value_patterns = raw.values;
  if (raw.tokens) {
    const std::vector<absl::string_view> ends =
        absl::StrSplit(*raw.tokens, ':');
    uint64_t begin, end;
    if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &begin) ||
        !absl::SimpleAtoi(ends[1], &end)) {
      return InvalidValue(*raw.tokens, "tokens", "must be FIRST:END");
    }
    flags->tokens.emplace(begin, end);
  }
  if (raw.order == "layers") {
    flags->order = v1::TENSOR_ORDER_LAYERS;
  } else if (raw.order && *raw.order != "file") {
    return InvalidValue(*raw.order, "order", "must be file or layers");
  }
  for (const std::string& label : raw.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidValue(label, "label", "must be KEY=VALUE");
    }
    const auto [position, added] = flags->labels.emplace(
        label.substr(0, equals), label.substr(equals + 1));
    if (!added) return InvalidValue(label, "label", "the key is given twice");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& arguments) {
  const absl::StatusOr<RawFlags> raw = ParseRawFlags(arguments);
  if (!raw.ok()) return raw.status();
  Flags flags;
  if (raw->help || raw->version || raw->man) {
    flags.mode = raw->help      ? Mode::kHelp
                 : raw->version ? Mode::kVersion
                                : Mode::kManual;
    flags.command = raw->command;
    return flags;
  }
  if (raw->completion) {
    flags.mode = Mode::kCompletion;
    flags.shell = *raw->completion;
    return flags;
  }
  flags.verbose = raw->verbose;
  flags.server = raw->server;
  flags.shared_directory = raw->shared_directory;
  absl::Status status = SetFiles(*raw, &flags);
  status.Update(CheckMode(*raw, flags.mode));
  status.Update(SetProfile(*raw, &flags));
  status.Update(SetThreads(*raw, &flags));
  status.Update(SetNumbers(*raw, &flags));
  status.Update(SetRope(*raw, &flags));
  status.Update(SetBounds(*raw, &flags));
  if (ListsCodecs(flags.mode)) {
    flags.codecs = SplitCodecs(raw->codec);
  } else {
    status.Update(SetCodec(*raw, &flags));
  }
  status.Update(SetBench(*raw, &flags));
  status.Update(SetEffort(*raw, &flags));
  status.Update(SetMetrics(*raw, &flags));
  status.Update(SetTls(*raw, &flags));
  status.Update(SetProgress(*raw, &flags));
  status.Update(SetPrinting(*raw, &flags));
  status.Update(SetSelection(*raw, &flags));
  if (!status.ok()) return status;
  return flags;
}

}  // namespace kvcompress::cli
