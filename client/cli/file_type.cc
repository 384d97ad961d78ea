// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/file_type.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::cli {
namespace {

constexpr absl::string_view kSaveArrays =
    "load it in Python and save its arrays with safetensors.numpy.save_file";
constexpr absl::string_view kSaveTensors =
    "load it in Python and save its tensors with safetensors.torch.save_file";
constexpr absl::string_view kDecompress = "decompress it first";
constexpr absl::string_view kLlamaCpp =
    "compress it with python -m kvcompress.integrations.llama_cpp compress";
constexpr absl::string_view kNameCache =
    "name the .safetensors file that has the cache";

// How the header of every artefact begins, behind its length: core/FORMAT.md,
// section 2.
constexpr absl::string_view kArtefactBeginning =
    R"({"__metadata__":{"kvcompress.checksum":")";
constexpr size_t kLengthBytes = 8;

struct FileType {
  absl::string_view start;
  absl::string_view what;
  absl::string_view remedy;
};

// In the order in which they are tried.
constexpr FileType kTypes[] = {
    {"\x93NUMPY", "a NumPy array (.npy)", kSaveArrays},
    {"GGUF", "a GGUF file, which has weights of a model, not a KV cache",
     kNameCache},
    {"nsgg", "a session of llama.cpp", kLlamaCpp},
    {"qsgg", "a saved slot of llama.cpp", kLlamaCpp},
    {"\x80\x02", "a Python pickle, as PyTorch wrote before 1.6", kSaveTensors},
    {"\x80\x03", "a Python pickle", kSaveTensors},
    {"\x80\x04\x95", "a Python pickle", kSaveTensors},
    {"\x80\x05\x95", "a Python pickle", kSaveTensors},
    {"\x1f\x8b\x08", "compressed with gzip", kDecompress},
    {"\x28\xb5\x2f\xfd", "compressed with Zstandard", kDecompress},
    {"\x04\x22\x4d\x18", "compressed with LZ4", kDecompress},
    {"\xfd"
     "7zXZ",
     "compressed with xz", kDecompress},
    {"BZh", "compressed with bzip2", kDecompress},
    {"\x89HDF\r\n\x1a\n", "an HDF5 file", kSaveArrays},
    {"PAR1", "a Parquet file", kSaveArrays},
    {"ARROW1", "an Arrow file", kSaveArrays},
    {"version https://git-lfs.github.com/spec/",
     "a Git LFS pointer, which stands for a file that was not downloaded",
     "run git lfs pull where it lies"},
    {"<!DOCTYPE html", "an HTML page, perhaps of a download that failed",
     "download the cache again"},
    {"<html", "an HTML page, perhaps of a download that failed",
     "download the cache again"},
};

// What a ZIP archive is by the name of its first member.
FileType ZipType(absl::string_view start) {
  constexpr size_t kNameOffset = 30;
  const absl::string_view name =
      start.size() > kNameOffset ? start.substr(kNameOffset) : "";
  const size_t pickle = name.find("data.pkl");
  const size_t array = name.find(".npy");
  if (array < pickle) {
    return {"", "an archive of NumPy arrays (.npz)", kSaveArrays};
  }
  if (pickle != absl::string_view::npos) {
    return {"", "a PyTorch checkpoint (.pt, a ZIP archive of pickles)",
            kSaveTensors};
  }
  return {"", "a ZIP archive", kNameCache};
}

// Whether `start` begins as a safetensors file does: eight bytes of length,
// then an object of JSON. No other type does that.
bool LooksLikeSafetensors(absl::string_view start) {
  return start.size() > 8 && start[8] == '{' && start[7] == '\0' &&
         start[6] == '\0';
}

// Whether it reads as text: UTF-8 without control characters.
bool IsText(absl::string_view start) {
  // The last character may be cut.
  if (start.size() >= kFileTypeBytes) {
    start = TruncateUtf8(start, kFileTypeBytes - 4);
  }
  const std::string line =
      absl::StrReplaceAll(start, {{"\n", " "}, {"\r", " "}, {"\t", " "}});
  return Printable(line) == line;
}

// Whether the first bytes can be the length of a header.
bool HasHeaderLength(absl::string_view start) {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<uint8_t>(start[i]);
  }
  return length >= 2 && length <= kMaxSafetensorsHeader;
}

// What a file is that has neither the length of a header nor its first
// character, so that more than a byte of it would have to be damaged. Nothing
// of it is shown: it may be the bytes of a cache.
FileType UnknownType(absl::string_view start) {
  if (start.find_first_not_of('\0') == absl::string_view::npos) {
    return {"", "zeros from its first byte, perhaps of a copy that failed",
            "copy or write it again"};
  }
  if (IsText(start)) return {"", "text", kNameCache};
  return {"", "binary data of no known type", kNameCache};
}

absl::Status Unfit(const FileType& type) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the file is ", type.what,
                                ", not a safetensors file: ", type.remedy),
                   {.reason = "INVALID_HEADER"});
}

// The first bytes of a file; nothing where it cannot be read.
std::optional<std::string> StartOf(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string start(kFileTypeBytes, '\0');
  const ssize_t size = pread(fd, start.data(), start.size(), 0);
  close(fd);
  if (size < 0) return std::nullopt;
  start.resize(static_cast<size_t>(size));
  return start;
}

}  // namespace

absl::Status CheckFileType(absl::string_view start) {
  if (LooksLikeSafetensors(start)) return absl::OkStatus();
  for (const FileType& type : kTypes) {
    if (absl::StartsWith(start, type.start)) return Unfit(type);
  }
  if (absl::StartsWith(start, "PK\x03\x04")) return Unfit(ZipType(start));
  constexpr size_t kTarOffset = 257;
  if (start.size() > kTarOffset &&
      absl::StartsWith(start.substr(kTarOffset), "ustar")) {
    return Unfit({"", "a tar archive", "unpack it, and name what it has"});
  }
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(start);
  if (absl::StartsWith(text, "{") || absl::StartsWith(text, "[")) {
    const bool index = absl::StrContains(start, "weight_map");
    return Unfit(
        {"", index ? "the index of a model in several files (JSON)" : "JSON",
         kNameCache});
  }
  if (start.size() <= kLengthBytes) return absl::OkStatus();
  const bool damaged = start[kLengthBytes] == '{' || HasHeaderLength(start);
  return damaged && !IsText(start) ? absl::OkStatus()
                                   : Unfit(UnknownType(start));
}

absl::Status CheckFileTypeOf(const std::string& path) {
  struct stat file;
  if (path == "-" || stat(path.c_str(), &file) != 0) return absl::OkStatus();
  if (S_ISDIR(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("read ", path,
                     ": is a directory: name a file, or give "
                     "folders as arguments, without -input"));
  }
  if (!S_ISREG(file.st_mode)) return absl::OkStatus();
  const std::optional<std::string> start = StartOf(path);
  return start ? CheckFileType(*start) : absl::OkStatus();
}

bool IsArtefact(const std::string& path) {
  const std::string start = StartOf(path).value_or("");
  return start.size() > kLengthBytes &&
         absl::StartsWith(absl::string_view(start).substr(kLengthBytes),
                          kArtefactBeginning);
}

}  // namespace kvcompress::cli
