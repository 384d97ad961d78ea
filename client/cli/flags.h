// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The command line of kv-compress: the flags of the Go program it replaces, in
// that program's syntax (one dash or two, -flag value or -flag=value, boolean
// flags bare or with =true and =false, the last one wins), and the new ones.

#ifndef KVCOMPRESS_CLIENT_CLI_FLAGS_H_
#define KVCOMPRESS_CLIENT_CLI_FLAGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvcompress/profile.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "kvcompress/v1/quality.pb.h"

namespace kvcompress::cli {

// What the command line asks for.
enum class Mode {
  kCompress,
  kMeasure,
  kDecompress,
  kInfo,
  kVerify,
  kTrain,
  kCompare,
  kBench,
  kCompletion,
  kManual,
  kHelp,
  kVersion
};

// Whether files are what it makes.
inline bool Writes(Mode mode) {
  return mode == Mode::kCompress || mode == Mode::kDecompress;
}

// When to draw a progress bar. kAuto: on a terminal, once work takes a second.
enum class ProgressMode { kAuto, kAlways, kNever };

// How results are printed. kAuto: as a table on a terminal, else as JSON.
enum class Format { kAuto, kJson, kTable };

// What kBench measures.
struct BenchFlags {
  std::vector<size_t> concurrency = {1};
  uint64_t size = 16 << 20;                    // bytes of a generated cache
  absl::Duration duration = absl::Seconds(5);  // of each measurement
};

struct Flags {
  Mode mode = Mode::kCompress;
  std::string command;  // of kHelp, whose flags it lists; empty for all
  // The first of `inputs`; "-" is standard input. Of kBench, without `inputs`,
  // its file, or empty.
  std::string input;
  // "-" is standard output; empty: next to the input (DefaultOutput in
  // batch.h).
  std::string output;
  std::vector<std::string> inputs;
  // Whether `inputs` may be several files or folders; not after -input.
  bool several = false;
  Format format = Format::kAuto;
  bool quiet = false;
  bool force = false;
  std::string shell;                // of kCompletion
  std::vector<std::string> codecs;  // of kCompare, empty for all; of kBench
  bool verbose = false;
  std::string server;  // empty: the service runs in this process
  // Where this process sees the directory that the server shares; empty: where
  // the server sees it.
  std::string shared_directory;
  // Paths of PEM files; plain text when the first is empty.
  std::string tls_ca, tls_cert, tls_key;
  // The codec string that -codec, -preset, -group-size, -sparsity and
  // -last-stage compose.
  std::string codec;
  bool default_codec = false;  // whether nothing but a group size was said
  // Shell patterns of names.
  std::vector<std::string> key_patterns, value_patterns;
  std::optional<double> rope_theta;
  std::optional<v1::RopeParameters> rope;  // not together
  std::string model_config;  // the file that `rope` is from; empty for none
  std::string layout;        // empty: what the input's metadata says
  v1::Effort effort = v1::EFFORT_UNSPECIFIED;
  size_t block_tokens = 0;  // 0: the default
  v1::MetricsLevel metrics = v1::METRICS_LEVEL_UNSPECIFIED;
  // Bounds that every tensor must hold; of keys and of values, where they
  // differ.
  std::optional<v1::QualityThresholds> thresholds, key_thresholds,
      value_thresholds;
  ProgressMode progress = ProgressMode::kAuto;
  std::vector<std::string> tensors;                     // shell patterns
  std::optional<std::pair<uint64_t, uint64_t>> tokens;  // half-open
  v1::TensorOrder order = v1::TENSOR_ORDER_UNSPECIFIED;
  std::map<std::string, std::string> labels;
  // A file, or with `server` a name, digest or label; empty for none.
  std::string profile;
  size_t threads = 0;  // 0: one on each processor
  BenchFlags bench;
  // Of kTrain, which writes `output`.
  std::vector<std::string> files;
  std::string model_label;
  size_t profile_layers = 10;
  size_t profile_components = 1024;
  std::vector<ProfilePreset> train_presets;  // empty for the default
  bool train_contract = false;
  std::string train_metric;  // a file; empty for none
  std::string train_basis;   // a file; empty for none
  std::string train_note;
};

// Reads the arguments, the program's name left out, and the environment.
// INVALID_ARGUMENT with the message to print.
absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& arguments);

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_FLAGS_H_
