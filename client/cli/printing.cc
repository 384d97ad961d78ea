// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/printing.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/signals.h"
#include "client/cpp/errno_error.h"
#include "kvcompress/error.h"

namespace kvcompress::cli {

bool PrintsTable(const Flags& flags, std::FILE* file) {
  if (flags.format != Format::kAuto) return flags.format == Format::kTable;
  return isatty(fileno(file)) == 1;
}

absl::Status PrintText(absl::string_view text, std::FILE* file) {
  if (std::fwrite(text.data(), 1, text.size(), file) < text.size() ||
      std::fflush(file) != 0) {
    if (errno == EPIPE && file == stdout) EndByClosedPipe();
    return ErrnoError(errno, "write",
                      file == stdout ? "/dev/stdout" : "/dev/stderr");
  }
  return absl::OkStatus();
}

std::string ErrorLine(const FileTask& task, const absl::Status& error) {
  return absl::StrCat("Error: ", Printable(task.input), ": ",
                      Printable(error.message()), "\n");
}

int ExitStatus(const FileResult& result) {
  if (!result.error.ok()) return kExitError;
  return result.holds_bounds ? kExitOk : kExitGate;
}

int Worse(int a, int b) {
  if (a == kExitError || b == kExitError) return kExitError;
  return a == kExitOk ? b : a;
}

}  // namespace kvcompress::cli
