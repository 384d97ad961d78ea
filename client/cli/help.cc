// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/help.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/raw_flags.h"
#include "client/cli/subcommands.h"
#include "kvcompress/codec.h"

namespace kvcompress::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kTextColumn = 30;  // of flags

// Breaks lines between words; those behind the first begin at `indent`.
std::string Wrapped(absl::string_view text, size_t indent) {
  std::string lines;
  size_t column = indent;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&lines, "\n", std::string(indent, ' '));
      column = indent;
    } else if (column > indent) {
      absl::StrAppend(&lines, " ");
      ++column;
    }
    absl::StrAppend(&lines, word);
    column += word.size();
  }
  return lines;
}

// "  -o,--output FILE          Output file ...".
std::string FlagLines(const FlagDescription& flag) {
  std::string name = "  ";
  if (!flag.short_name.empty()) {
    absl::StrAppend(&name, "-", flag.short_name, ",");
  }
  absl::StrAppend(&name, "--", flag.name, flag.type.empty() ? "" : " ",
                  flag.type);
  // Two spaces at least.
  name += name.size() + 2 > kTextColumn
              ? absl::StrCat("\n", std::string(kTextColumn, ' '))
              : std::string(kTextColumn - name.size(), ' ');
  std::string text = flag.text;
  if (!flag.environment.empty()) {
    absl::StrAppend(&text, "; also from ", flag.environment);
  }
  return absl::StrCat(name, Wrapped(text, kTextColumn), "\n");
}

// Flags under the titles of their groups, each with an empty line before it.
std::string FlagLists(const std::vector<FlagDescription>& flags) {
  std::string text;
  std::string group;
  for (const FlagDescription& flag : flags) {
    if (flag.group != group) absl::StrAppend(&text, "\n", flag.group, ":\n");
    group = flag.group;
    absl::StrAppend(&text, FlagLines(flag));
  }
  return text;
}

// The examples of a command, or of all.
std::string ExampleLines(absl::string_view command) {
  std::string text = "Examples:\n";
  for (const Example& example : Examples()) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(example.command, ' ');
    if (!command.empty() && words[1] != command) continue;
    absl::StrAppend(&text, "  ", example.command, "\n      ",
                    Wrapped(example.text, 6), "\n");
  }
  return text;
}

}  // namespace

std::string ShortUsage() {
  std::string text = "Usage:\n";
  for (const Command& command : Commands()) {
    const std::string form =
        absl::StrCat("kv-compress ", command.name, " ", command.arguments);
    absl::StrAppendFormat(&text, "  %-46s  %s\n", form, command.text);
  }
  return text;
}

std::string Usage(absl::string_view name) {
  const Command* const command = FindCommand(name);
  std::string text;
  if (command == nullptr) {
    text = absl::StrCat("Compress KV caches with measured quality.\n\n",
                        ShortUsage(), "\n", DescribeCommands(), "\n\n",
                        ExampleLines(""), FlagLists(DescribeFlags()), "\n",
                        DescribeOutputs(), "\n\n", DescribeCodecs());
  } else {
    text = absl::StrCat("Usage: kv-compress ", name, " ", command->arguments,
                        "\n  ", name, ": ", command->text, "\n\n",
                        ExampleLines(name), FlagLists(FlagsOf(*command)),
                        "\nkv-compress -help describes codecs and outputs.\n");
  }
  return absl::StrCat(text, "\n", DescribeExitStatus(), "\n");
}

std::string DescribeCommands() {
  return "kv-compress COMMAND -help has the flags of one command. The command "
         "may be\nleft out: kv-compress FILE compresses, and -decompress, "
         "-compare, -verify,\n-info, -metrics-only and -train-profile do what "
         "restore, compare, verify,\ninfo, measure and train do. A file that "
         "is called like a command is ./NAME.";
}

std::string DescribeCodecs() {
  std::string text =
      "CODEC is NAME[:PARAMETERS][+BYTE_COMPRESSOR]. PARAMETERS are a preset,\n"
      "or values of the options below, separated by commas: first those "
      "without\n"
      "a name, in this order, then NAME=VALUE. Such as int4, klt:ultra,\n"
      "sparse:0.5,32, sparse:group_size=32, int4:64+zstd. -preset, "
      "-group-size,\n"
      "-sparsity and -last-stage are shorthands for parts of it.\n\n"
      "Codecs:\n";
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    absl::StrAppend(&text, "  ", traits.name, "\n      ", traits.description,
                    "\n");
    for (const CodecOption& option : traits.options) {
      absl::StrAppend(&text, "      ", option.name, ": ", option.description,
                      ": ", option.Range());
      if (option.default_value) {
        absl::StrAppend(&text, " (default ", option.DefaultText(), ")");
      }
      absl::StrAppend(&text, "\n");
    }
    if (!traits.presets.empty()) {
      absl::StrAppend(&text,
                      "      presets: ", absl::StrJoin(traits.presets, ", "),
                      " (default ", traits.presets[0], ")\n");
    }
  }
  absl::StrAppend(&text,
                  "Byte compressors: ", absl::StrJoin(ByteCompressors(), ", "),
                  "\n");
  return text;
}

std::string DescribeOutputs() {
  return "Flags take one dash or two, and may stand before and behind files. "
         "The\nresult is printed to standard output, everything else to "
         "standard error;\nwith -output - the result goes to standard error "
         "too.\n\n"
         "Without -output, the result of NAME.safetensors lies next to it as\n"
         "NAME.kvc.safetensors, and what is restored from that as\n"
         "NAME.restored.safetensors; standard input goes to standard output.\n"
         "Nothing that exists is overwritten without -force, but by the flags "
         "of\n"
         "the first release alone.\n\n"
         "Several files, and folders with all safetensors files below them, "
         "are\ncompressed or restored into the folder that -output names, or "
         "next to\neach. Each has a line of its own in the result, and one "
         "that "
         "fails does\nnot stop the others.";
}

std::vector<Example> Examples() {
  return {
      {"kv-compress compare cache.safetensors",
       "Which codec suits this cache: ratio, quality and speed of each"},
      {"kv-compress compress cache.safetensors",
       "To cache.kvc.safetensors, every tensor within the default thresholds"},
      {"kv-compress restore cache.kvc.safetensors -o restored.safetensors",
       "Restore"},
      {"kv-compress verify cache.kvc.safetensors",
       "Decode and check everything, write nothing"},
      {"kv-compress compress caches/ -codec klt:high -o compressed/",
       "Compress every cache below a folder"},
      {"kv-compress info cache.safetensors", "What the tensors are taken for"},
      {"kv-compress measure cache.safetensors -verbose",
       "Measure every tensor, write nothing"},
      {"kv-compress train -o model.profile -model-label NAME *.safetensors",
       "Train a profile of a model"},
      {"kv-compress compress cache.safetensors -profile model.profile -codec "
       "klt:ultra",
       "Compress with it"},
      {"kv-compress bench -server 127.0.0.1:50051 -codec int4,auto "
       "-concurrency 1,2,4",
       "Calls and megabytes a second of a server, and their latency"},
  };
}

std::string DescribeExitStatus() {
  return "Exit status: 0 success, 1 error, 2 when a bound that was asked for "
         "does\nnot hold: -min-snr-db, -thresholds, -key-thresholds, "
         "-value-thresholds.\nOf several files the worst: 1 before 2.";
}

}  // namespace kvcompress::cli
