// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/train.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/cli/columns.h"
#include "client/cli/file_type.h"
#include "client/cli/files.h"
#include "client/cli/progress.h"
#include "client/cli/text_tables.h"
#include "client/cpp/status.h"
#include "kvcompress/artefact.h"
#include "kvcompress/error.h"
#include "kvcompress/file_source.h"
#include "kvcompress/profile_training.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

// A safetensors file, read where a tensor lies.
class FileCache : public TrainingCache {
 public:
  static absl::StatusOr<std::unique_ptr<FileCache>> Open(
      const std::string& path) {
    auto cache = std::unique_ptr<FileCache>(new FileCache(path));
    absl::Status status = CheckFileTypeOf(path);
    if (status.ok()) status = cache->ReadHeader();
    if (!status.ok()) {
      return Annotate(status, absl::StrCat(path, ": "));
    }
    return cache;
  }

  const std::string& name() const override { return path_; }
  const std::vector<TensorSpec>& tensors() const override { return specs_; }

  absl::StatusOr<std::string> Read(size_t tensor) override {
    const SafetensorsEntry& entry = header_.tensors[tensor];
    std::string bytes(entry.end - entry.begin, '\0');
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(data_begin_ + entry.begin));
    file_.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file_) {
      return absl::DataLossError(
          absl::StrCat(path_, ": the file is cut short"));
    }
    return bytes;
  }

 private:
  explicit FileCache(const std::string& path)
      : path_(path), file_(path, std::ios::binary) {}

  absl::Status ReadHeader() {
    constexpr size_t kAtOnce = 64 << 10;
    SafetensorsHeaderReader reader(kMaxSafetensorsHeader);
    std::string buffer(kAtOnce, '\0');
    if (!file_) return absl::NotFoundError("the file cannot be opened");
    while (!reader.done()) {
      file_.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
      absl::string_view bytes(buffer.data(),
                              static_cast<size_t>(file_.gcount()));
      if (bytes.empty()) return reader.TruncatedError();
      if (absl::Status status = reader.Append(&bytes); !status.ok()) {
        return status;
      }
    }
    data_begin_ = reader.raw().size();
    if (ParseArtefactHeader(reader.raw()).ok()) {
      return absl::InvalidArgumentError(
          "it is an artefact, which was compressed already: train on the "
          "cache, or on what kv-compress restore gives of it");
    }
    absl::StatusOr<SafetensorsHeader> header =
        ParseSafetensorsHeader(reader.json());
    if (!header.ok()) return header.status();
    header_ = *std::move(header);
    for (SafetensorsEntry& entry : header_.tensors) {
      InferRole(&entry.spec);
      specs_.push_back(entry.spec);
    }
    return absl::OkStatus();
  }

  const std::string path_;
  std::ifstream file_;
  SafetensorsHeader header_;
  uint64_t data_begin_ = 0;
  std::vector<TensorSpec> specs_;
};

Json ProfileJson(const Profile& profile, uint64_t size) {
  const ProfileContent& content = profile.content();
  Json presets = Json::object();
  Json expectations = Json::object();
  for (const ProfilePreset& preset : content.presets) {
    presets[preset.name] = preset.step;
    if (!preset.expected) continue;
    expectations[preset.name] = {
        {"ratio", preset.expected->ratio},
        {"divergence", preset.expected->divergence},
        {"int4_divergence", preset.expected->int4_divergence},
        {"least_share", preset.expected->least_share},
        {"most_share", preset.expected->most_share}};
  }
  Json groups = Json::array();
  for (const ProfileGroup& group : content.groups) {
    groups.push_back({{"tensors", group.tensors.size()},
                      {"channels", group.channels()},
                      {"components", group.components}});
  }
  return Json{{"profile", profile.id().digest},
              {"label", profile.id().label},
              {"size_bytes", size},
              {"training", content.training},
              {"presets", std::move(presets)},
              {"expectations", std::move(expectations)},
              {"rotations", content.rotations.size()},
              {"groups", std::move(groups)}};
}

}  // namespace

std::string ProfileTable(const std::string& path, const Json& json) {
  std::vector<std::string> layers;
  for (const Json& group : json.at("groups")) {
    layers.push_back(absl::StrCat(group.at("tensors").get<size_t>() / 2));
  }
  using enum Columns::Side;
  Columns facts({kLeft, kLeft});
  facts.AddRow({"profile", Printable(path)});
  facts.AddRow({"digest", json.at("profile").get<std::string>()});
  facts.AddRow({"label", Printable(json.at("label").get<std::string>())});
  facts.AddRow({"size", SizeText(json.at("size_bytes").get<uint64_t>())});
  facts.AddRow({"training", Printable(json.at("training").get<std::string>())});
  facts.AddRow(
      {"groups", absl::StrCat("of ", absl::StrJoin(layers, ", "), " layers")});
  Columns columns({kLeft, kRight, kRight, kRight});
  columns.AddRow({"preset", "step", "ratio", "KL divergence, of int4's"});
  const Json& expectations = json.at("expectations");
  for (const auto& [name, step] : json.at("presets").items()) {
    std::vector<std::string> row = {
        Printable(name), absl::StrFormat("%.3g", step.get<double>())};
    if (const auto found = expectations.find(name);
        found != expectations.end()) {
      row.push_back(RatioText(found->at("ratio").get<double>()));
      row.push_back(ShareText(*found));
    } else {
      row.insert(row.end(), {"-", "not measured"});
    }
    columns.AddRow(std::move(row));
  }
  return absl::StrCat(facts.ToString(), "\n", columns.ToString());
}

absl::StatusOr<Json> Train(const Flags& flags) {
  std::vector<std::unique_ptr<FileCache>> files;
  std::vector<TrainingCache*> caches;
  for (const std::string& path : flags.files) {
    absl::StatusOr<std::unique_ptr<FileCache>> file = FileCache::Open(path);
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
    caches.push_back(files.back().get());
  }
  absl::StatusOr<std::unique_ptr<Output>> output =
      Output::Open(flags.output, flags, /*source=*/nullptr);
  if (!output.ok()) return output.status();
  std::unique_ptr<Progress> progress;
  TrainingOptions options = {.label = flags.model_label,
                             .layers_per_group = flags.profile_layers,
                             .components = flags.profile_components,
                             .rope_theta = flags.rope_theta,
                             .presets = flags.train_presets,
                             .contract = flags.train_contract,
                             .note = flags.train_note};
  std::unique_ptr<FileCache> metric;
  if (!flags.train_metric.empty()) {
    absl::StatusOr<std::unique_ptr<FileCache>> file =
        FileCache::Open(flags.train_metric);
    if (!file.ok()) return file.status();
    metric = *std::move(file);
    options.metric = metric.get();
  }
  std::shared_ptr<const Profile> basis;
  if (!flags.train_basis.empty()) {
    absl::StatusOr<std::shared_ptr<const Profile>> read =
        ReadProfile(flags.train_basis);
    if (!read.ok()) return read.status();
    basis = *std::move(read);
    options.basis = &basis->content();
  }
  options.progress = [&](size_t, size_t all) {
    if (progress == nullptr) {
      progress = std::make_unique<Progress>(flags.progress, all, "training",
                                            ProgressUnit::kSteps);
    }
    progress->Advance(1);
    return absl::OkStatus();
  };
  const absl::StatusOr<std::string> bytes = TrainProfile(options, caches);
  progress.reset();
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<std::shared_ptr<const Profile>> profile =
      Profile::Parse(*bytes);
  if (!profile.ok()) return profile.status();
  absl::Status status = (*output)->WriteAt(0, *bytes);
  if (status.ok()) status = (*output)->Commit();
  if (!status.ok()) return status;
  return ProfileJson(**profile, bytes->size());
}

absl::StatusOr<std::shared_ptr<const Profile>> ReadProfile(
    const std::string& path) {
  absl::StatusOr<std::unique_ptr<FileSource>> file = FileSource::Open(path);
  const std::string prefix = absl::StrCat("read profile ", path, ": ");
  if (!file.ok()) return Annotate(file.status(), prefix);
  std::string bytes;
  bytes.reserve(std::min((*file)->size().value_or(0), kMaxProfileBytes));
  std::string buffer(1 << 20, '\0');
  while (bytes.size() <= kMaxProfileBytes) {
    const absl::StatusOr<size_t> size = (*file)->Read(absl::MakeSpan(buffer));
    if (!size.ok()) return Annotate(size.status(), prefix);
    if (*size == 0) break;
    bytes.append(buffer, 0, *size);
  }
  absl::StatusOr<std::shared_ptr<const Profile>> profile =
      Profile::Parse(bytes);
  if (!profile.ok()) return Annotate(profile.status(), prefix);
  return profile;
}

}  // namespace kvcompress::cli
