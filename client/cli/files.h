// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The input and the output of a command, with errors in the words of the Go
// program: "read input: open FILE: no such file or directory".

#ifndef KVCOMPRESS_CLIENT_CLI_FILES_H_
#define KVCOMPRESS_CLIENT_CLI_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/flags.h"
#include "client/cli/progress.h"
#include "kvcompress/byte_stream.h"
#include "kvcompress/file_identity.h"
#include "kvcompress/file_source.h"
#include "kvcompress/output_file.h"

namespace kvcompress::cli {

// Reads a file and shows how far it has come.
class Input : public ByteSource {
 public:
  // `label` stands before the line of progress. INVALID_ARGUMENT for a file of
  // another kind (file_type.h).
  static absl::StatusOr<std::unique_ptr<Input>> Open(
      const std::string& path, ProgressMode progress,
      const std::string& label = "");

  absl::StatusOr<size_t> Read(absl::Span<char> buffer) override;
  void Cancel() override { file_->Cancel(); }

  std::optional<FileIdentity> identity() const { return file_->identity(); }
  std::optional<mode_t> permissions() const { return file_->permissions(); }

  // Shows bytes that somebody else has read.
  void Advance(uint64_t bytes) { progress_.Advance(bytes); }

 private:
  Input(std::unique_ptr<FileSource> file, ProgressMode progress,
        const std::string& label)
      : file_(std::move(file)), progress_(progress, file_->size(), label) {}

  const std::unique_ptr<FileSource> file_;
  Progress progress_;
  bool begun_ = false;
};

// The files that `flags` name and that are only read, but for -input.
std::vector<std::optional<FileIdentity>> FilesRead(const Flags& flags);

// `status` of writing `path`, which says what to do where the file exists.
absl::Status OutputError(const absl::Status& status, const std::string& path);

// Writes a file that is removed when a signal ends the process. Refuses to
// write to a terminal, to a file that is read, and to one that is there where
// it may not be overwritten.
class Output : public ByteSink {
 public:
  // `source` is read besides the files of the flags, and the output has its
  // permissions; null for none.
  static absl::StatusOr<std::unique_ptr<Output>> Open(const std::string& path,
                                                      const Flags& flags,
                                                      const Input* source);

  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override;
  absl::Status Commit();

  // Whether the bytes go to standard output.
  bool is_stdout() const { return is_stdout_; }

 private:
  Output(std::unique_ptr<OutputFile> file, const std::string& path,
         bool is_stdout)
      : file_(std::move(file)), path_(path), is_stdout_(is_stdout) {}

  const std::unique_ptr<OutputFile> file_;
  const std::string path_;
  const bool is_stdout_;
};

}  // namespace kvcompress::cli

#endif  // KVCOMPRESS_CLIENT_CLI_FILES_H_
