// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/raw_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/codec_flags.h"
#include "client/cli/flags.h"
#include "client/cli/go_syntax.h"
#include "client/cli/subcommands.h"
#include "client/cli/thresholds.h"
#include "kvcompress/codec.h"

namespace kvcompress::cli {
namespace {

// The flags of the Go program.
constexpr absl::string_view kSeedFlags[] = {
    "input",      "output",       "group-size", "sparsity",
    "decompress", "metrics-only", "verbose",
};

// Describes every flag to CLI11, by what people do with it. A flag without a
// type is boolean.
void Define(CLI::App* app, RawFlags* raw) {
  app->set_help_flag();
  // Heads the flags that follow, in -help and the manual page.
  std::string group;
  const auto value = [app, &group](const char* name, auto* target,
                                   const char* type, const std::string& text) {
    using Target = std::remove_pointer_t<decltype(target)>;
    using Value =
        std::conditional_t<std::is_same_v<Target, bool>, bool, std::string>;
    // Not add_option, which takes an empty value for none.
    return app
        ->add_option_function<Value>(
            name, [target](const Value& given) { *target = given; }, text)
        ->type_name(type)
        ->group(group)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  const auto flag = [value](const char* name, bool* target, const char* text) {
    value(name, target, "", text);
  };
  const auto list = [app, &group](const char* name,
                                  std::vector<std::string>* target,
                                  const char* type, const char* text) {
    app->add_option(name, *target, text)
        ->type_name(type)
        ->group(group)
        ->allow_extra_args(false);
  };
  group = "What to do";
  flag("-d,--decompress", &raw->decompress, "Restore what an artefact holds");
  value("--compare", &raw->compare, "FILE",
        "Measure files, and folders, with several codecs, those of -codec or "
        "all with all presets, and those of -profile; print a table of ratio, "
        "quality and speed of each file and of all; write nothing, but hold "
        "one artefact at a time in memory");
  value("--verify", &raw->verify, "FILE",
        "Decode an artefact, check everything, write nothing");
  value("--info", &raw->info, "FILE",
        "List an artefact without decoding it, or what the tensors of a "
        "safetensors file would be taken for: roles, and likely layouts");
  flag("--metrics-only", &raw->metrics_only, "Measure, write nothing");
  group = "Files";
  value("-o,--output", &raw->output, "FILE",
        "Output file, or folder of several; - is standard output (default: "
        "next to the input)");
  value("--input", &raw->input, "FILE", "Input file; - is standard input");
  flag("--force", &raw->force,
       "Overwrite outputs that exist; with no flags but input, output, "
       "group-size, sparsity, decompress and verbose they always are");
  group = "How to compress";
  value("--codec", &raw->codec, "CODEC",
        absl::StrCat(
            "Codec, or for compare and bench a list; see below (default ",
            kDefaultCodec, " at effort fast; ", kFirstReleaseCodec,
            " with flags of the first release alone, or with "
            "-group-size)"));
  value("--effort", &raw->effort, "LEVEL",
        "Encoding effort: fast, balanced or best (default balanced; fast where "
        "no codec is named)");
  value("--profile", &raw->profile, "PROFILE",
        "Profile of the model, a file; with -server the name, digest or label "
        "of one that the server has: klt and lossless compress with it, and "
        "artefacts made with it need it")
      ->envname("KVCOMPRESS_PROFILE");
  value("--block-tokens", &raw->block_tokens, "N",
        "Tokens of a block of what the profile codes, 16 to 256 (default 256): "
        "shorter blocks are restored faster on a GPU, and take more bytes");
  value("--threads", &raw->threads, "COUNT",
        "How many threads work at a time, at most, 1 to 1024 (default: one on "
        "each processor); without -server");
  list("--label", &raw->labels, "KEY=VALUE",
       "Bind a label, or expect it when decoding (repeatable)");
  group = "Parts of a codec string";
  value("--preset", &raw->preset, "NAME",
        "Preset of the codec, or values of its options");
  value("--group-size", &raw->group_size, "N",
        "Elements that share a scale: 32, 64 or 128 (default 64)");
  value("--sparsity", &raw->sparsity, "RATIO",
        "Share of values that become zero, 0 to 1 (default 0); selects sparse");
  value("--last-stage", &raw->last_stage, "NAME",
        "lz4 or zstd over what the codec writes, where that makes it smaller");
  group = "Bounds on the quality";
  value("--thresholds", &raw->thresholds, "NAME=X,...",
        absl::StrCat("Publish only if every tensor meets these bounds: ",
                     ThresholdNames()));
  value("--key-thresholds", &raw->key_thresholds, "NAME=X,...",
        "Bounds for keys, where they differ");
  value("--value-thresholds", &raw->value_thresholds, "NAME=X,...",
        "Bounds for values, where they differ");
  value("--min-snr-db", &raw->min_snr_db, "DB",
        "Publish only if the SNR of every tensor is above this");
  value("--metrics", &raw->metrics, "LEVEL",
        "What is measured: full, or basic, without what needs tokens (default "
        "full)");
  group = "What the tensors are";
  value("--layout", &raw->layout, "LAYOUT",
        "What the dimensions of tensors are: bthd, thd, td:heads=N, paged, "
        "2pshd, mla, ... (default: from the metadata, or bhtd; see FORMAT.md)");
  list("--keys", &raw->keys, "GLOB",
       "Tensors whose names match hold keys, whatever the names say "
       "(repeatable)");
  list("--values", &raw->values, "GLOB",
       "Tensors whose names match hold values (repeatable)");
  value("--model-config", &raw->model_config, "FILE",
        "config.json of the model, from which the rotary embedding of the keys "
        "is taken");
  value("--rope", &raw->rope, "JSON",
        "The fields of a config.json that say what the rotary embedding is");
  value("--rope-theta", &raw->rope_theta, "BASE",
        "Base of the rotary embedding of the keys; 0: none (default: from the "
        "metadata, or found out)");
  group = "Restoring a part";
  list("--tensors", &raw->tensors, "GLOB",
       "Decompress only matching tensors, at least one (repeatable)");
  value("--tokens", &raw->tokens, "A:B", "Decompress only tokens A to B-1");
  value("--order", &raw->order, "ORDER",
        "Decompress tensors in this order: file, or layers, which are restored "
        "first to last (default file)");
  group = "What is printed";
  value("--format", &raw->format, "FORMAT",
        "How results are printed: json or table (default: table on a terminal "
        "unless all flags are those of the first release, else json)");
  flag("--json", &raw->json, "Print results as JSON, as -format json does");
  flag("--verbose", &raw->verbose, "Report every tensor, log to stderr");
  flag("--quiet", &raw->quiet, "Print nothing to standard error but errors");
  value("--progress", &raw->progress, "WHEN",
        "Progress bar: auto, always or never (default auto)");
  group = "A server";
  value("--server", &raw->server, "ADDRESS",
        "HOST:PORT or unix:PATH of the service (default: inside this process)")
      ->envname("KVCOMPRESS_SERVER");
  value("--shared-directory", &raw->shared_directory, "DIR",
        "Where this process sees the directory that the service shares "
        "(default: where the service sees it); files in it are named, not sent")
      ->envname("KVCOMPRESS_SHARED_DIRECTORY");
  value("--tls-ca", &raw->tls_ca, "FILE",
        "Authorities, PEM, one of which must have signed the server's "
        "certificate; turns TLS on");
  value("--tls-cert", &raw->tls_cert, "FILE",
        "Certificate of this client, PEM, for a server that asks for one");
  value("--tls-key", &raw->tls_key, "FILE",
        "Private key of that certificate, PEM");
  group = "Load on a server";
  value("--concurrency", &raw->concurrency, "LIST",
        "Calls at a time, each on a connection of its own: a list such as "
        "1,2,4, with measurements for each (default 1)");
  value("--size", &raw->size, "BYTES",
        "Size of the generated cache that each call compresses, such as 64MiB "
        "(default 16MiB). Generated data is for speeds: its ratios are not "
        "those of a model, for which -input is");
  value("--seconds", &raw->seconds, "S",
        "Length of each measurement, 0.1 to 600 (default 5)");
  group = "Training a profile";
  value("--train-profile", &raw->train_profile, "PROFILE",
        "Train a profile from the caches that are named behind all flags, "
        "which begin at position 0");
  value("--model-label", &raw->model_label, "TEXT",
        "What the model is called, for -train-profile");
  value("--profile-layers", &raw->profile_layers, "N",
        "About how many layers are transformed together, in groups of equal "
        "size; 0 for all (default 10)");
  value("--profile-components", &raw->profile_components, "N",
        "Components that are kept of each group, 1 to 8192 (default 1024)");
  value("--train-presets", &raw->train_presets, "LIST",
        "NAME=STEP for each preset, joined by commas; behind each, if "
        "measured, :RATIO:KL:KL_OF_INT4, and :LEAST:MOST, the shares of "
        "INT4's by kind of text");
  value("--train-metric", &raw->train_metric, "FILE",
        "Safetensors file with a matrix for each tensor: errors matter by "
        "their length after it (default: by spreads)");
  flag("--train-contract", &raw->train_contract,
       "Train for klt:contract: errors matter by the usual bounds of a tensor, "
       "and by default 8192 components are kept");
  value("--train-basis", &raw->train_basis, "PROFILE",
        "Take all but label, presets and their tables from this profile");
  value("--train-note", &raw->train_note, "TEXT",
        "Text for the profile's record of its training");
  group = "This program";
  flag("-h,--help", &raw->help, "Print this text");
  flag("--version", &raw->version, "Print the versions");
  flag("--man", &raw->man, "Print the manual page");
  value("--completion", &raw->completion, "SHELL",
        "Print the completion of this command for bash, zsh or fish");
}

std::map<std::string, FlagSyntax> Syntax(const CLI::App& app) {
  std::map<std::string, FlagSyntax> result;
  for (const CLI::Option* option : app.get_options()) {
    FlagSyntax syntax;
    if (option->get_type_name().empty()) syntax.bare = "true";
    for (const std::string& letter : option->get_snames()) {
      result[letter] = syntax;
    }
    result[option->get_lnames().front()] = std::move(syntax);
  }
  result["progress"] = {.bare = "always",
                        .choices = {"auto", "always", "never"}};
  return result;
}

// Every codec alone and with each of its presets.
std::vector<std::string> CodecValues() {
  std::vector<std::string> values;
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    values.push_back(traits.name);
    for (const std::string& preset : traits.presets) {
      values.push_back(absl::StrCat(traits.name, ":", preset));
    }
  }
  return values;
}

std::vector<std::string> ValuesOf(const std::string& flag) {
  if (flag == "codec") return CodecValues();
  if (flag == "last-stage") return ByteCompressors();
  if (flag == "progress") return {"auto", "always", "never"};
  if (flag == "effort") return {"fast", "balanced", "best"};
  if (flag == "metrics") return {"basic", "full"};
  if (flag == "order") return {"file", "layers"};
  if (flag == "format") return {"json", "table"};
  if (flag == "completion") return {"bash", "zsh", "fish"};
  if (flag == "group-size") return {"32", "64", "128"};
  return {};
}

bool OnlySeedFlags(const std::vector<std::string>& names_and_values) {
  for (size_t i = 0; i < names_and_values.size(); i += 2) {
    absl::string_view name = names_and_values[i];
    // That program had no flags of one letter.
    if (!absl::ConsumePrefix(&name, "--")) return false;
    if (std::find(std::begin(kSeedFlags), std::end(kSeedFlags), name) ==
        std::end(kSeedFlags)) {
      return false;
    }
  }
  return true;
}

// Says what the Go program did without a flag: it had the codec with these
// flags alone, wrote over files, printed JSON, and had no default output.
void AddSeedDefaults(RawFlags* raw) {
  if (!raw->sparsity) raw->sparsity = "0";
  if (!raw->output) raw->output = "";
  raw->force = true;
  raw->json = true;
}

}  // namespace

absl::StatusOr<RawFlags> ParseRawFlags(
    const std::vector<std::string>& arguments) {
  RawFlags raw;
  std::vector<std::string> flags = arguments;
  const absl::StatusOr<const Command*> command = TakeCommand(&flags);
  if (!command.ok()) return command.status();
  CLI::App app;
  Define(&app, &raw);
  absl::StatusOr<std::vector<std::string>> normal =
      FromGoSyntax(flags, Syntax(app), &raw.files);
  if (!normal.ok()) return normal.status();
  const bool seed_invocation =
      *command == nullptr && raw.files.empty() && OnlySeedFlags(*normal);
  std::reverse(normal->begin(), normal->end());  // as CLI11 takes them
  try {
    app.parse(*std::move(normal));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (seed_invocation) AddSeedDefaults(&raw);
  if (*command == nullptr) return raw;
  raw.command = std::string((*command)->name);
  if (raw.help) return raw;
  if (absl::Status status = ApplyCommand(**command, &raw); !status.ok()) {
    return status;
  }
  return raw;
}

std::vector<FlagDescription> DescribeFlags() {
  RawFlags raw;
  CLI::App app;
  Define(&app, &raw);
  std::vector<FlagDescription> flags;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().front();
    const std::vector<std::string>& letters = option->get_snames();
    flags.push_back({.name = name,
                     .short_name = letters.empty() ? "" : letters.front(),
                     .group = option->get_group(),
                     .type = option->get_type_name(),
                     .text = option->get_description(),
                     .environment = option->get_envname(),
                     .values = ValuesOf(name)});
  }
  return flags;
}

}  // namespace kvcompress::cli
