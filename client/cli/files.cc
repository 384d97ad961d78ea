// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client/cli/file_type.h"
#include "client/cli/signals.h"
#include "client/cpp/status.h"

namespace kvcompress::cli {
namespace {

constexpr absl::string_view kReadInput = "read input: ";
constexpr absl::string_view kWriteOutput = "write output: ";

}  // namespace

absl::StatusOr<std::unique_ptr<Input>> Input::Open(const std::string& path,
                                                   ProgressMode progress,
                                                   const std::string& label) {
  absl::StatusOr<std::unique_ptr<FileSource>> file = FileSource::Open(path);
  if (!file.ok()) return Annotate(file.status(), kReadInput);
  const absl::Status fit = CheckFileTypeOf(path);
  if (!fit.ok()) return Annotate(fit, kReadInput);
  return absl::WrapUnique(new Input(*std::move(file), progress, label));
}

absl::StatusOr<size_t> Input::Read(absl::Span<char> buffer) {
  absl::StatusOr<size_t> size = file_->Read(buffer);
  if (!size.ok()) return Annotate(size.status(), kReadInput);
  if (!std::exchange(begun_, true)) {
    // Of a pipe, whose file could not be looked at.
    const absl::Status fit =
        CheckFileType({buffer.data(), std::min(*size, kFileTypeBytes)});
    if (!fit.ok()) return Annotate(fit, kReadInput);
  }
  progress_.Advance(*size);
  return size;
}

absl::Status CheckOverwriting(const Flags& flags, const std::string& path) {
  struct stat file;
  if (flags.force || flags.seed_invocation || IsStandardOutput(path) ||
      stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat(
      kWriteOutput, path, " already exists: give -force to overwrite it"));
}

absl::StatusOr<std::unique_ptr<Output>> Output::Open(const std::string& path) {
  const bool is_stdout = IsStandardOutput(path);
  if (is_stdout && isatty(STDOUT_FILENO) == 1) {
    return absl::InvalidArgumentError(
        "write output: standard output is a terminal");
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> file =
      OutputFile::Create(path, &RemoveOnSignal);
  if (!file.ok()) return Annotate(file.status(), kWriteOutput);
  return absl::WrapUnique(new Output(*std::move(file), is_stdout));
}

absl::Status Output::WriteAt(uint64_t offset, absl::string_view bytes) {
  return Annotate(file_->WriteAt(offset, bytes), kWriteOutput);
}

absl::Status Output::Commit() {
  return Annotate(file_->Commit(), kWriteOutput);
}

}  // namespace kvcompress::cli
