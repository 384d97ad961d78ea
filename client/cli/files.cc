// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/files.h"

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

std::vector<std::optional<FileIdentity>> FilesRead(const Flags& flags) {
  std::vector<std::string> paths = flags.files;
  paths.insert(paths.end(),
               {flags.model_config, flags.train_metric, flags.train_basis,
                flags.tls_ca, flags.tls_cert, flags.tls_key});
  // A server knows profiles by other names.
  if (flags.server.empty()) paths.push_back(flags.profile);
  std::vector<std::optional<FileIdentity>> files;
  for (const std::string& path : paths) files.push_back(IdentityOf(path));
  return files;
}

absl::Status OutputError(const absl::Status& status, const std::string& path) {
  if (!absl::IsAlreadyExists(status)) return Annotate(status, kWriteOutput);
  return absl::AlreadyExistsError(absl::StrCat(
      kWriteOutput, path, " already exists: give -force to overwrite it"));
}

absl::StatusOr<std::unique_ptr<Output>> Output::Open(const std::string& path,
                                                     const Flags& flags,
                                                     const Input* source) {
  const bool is_stdout = IsStandardOutput(path);
  if (is_stdout && isatty(STDOUT_FILENO) == 1) {
    return absl::InvalidArgumentError(
        "write output: standard output is a terminal");
  }
  OutputOptions options = {.temporary_hook = &RemoveOnSignal,
                           .overwrite = flags.force,
                           .inputs = FilesRead(flags)};
  if (source != nullptr) {
    options.inputs.push_back(source->identity());
    options.permissions = source->permissions();
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> file =
      OutputFile::Create(path, options);
  if (!file.ok()) return OutputError(file.status(), path);
  return absl::WrapUnique(new Output(*std::move(file), path, is_stdout));
}

absl::Status Output::WriteAt(uint64_t offset, absl::string_view bytes) {
  return Annotate(file_->WriteAt(offset, bytes), kWriteOutput);
}

absl::Status Output::Commit() { return OutputError(file_->Commit(), path_); }

}  // namespace kvcompress::cli
