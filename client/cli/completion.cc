// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/completion.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/help.h"
#include "client/cli/profile_flags.h"
#include "client/cli/raw_flags.h"
#include "client/cli/subcommands.h"
#include "kvcompress/version.h"

namespace kvcompress::cli {
namespace {

enum class Completed { kNothing, kFiles, kFolders, kValues };

Completed CompletedBy(const FlagDescription& flag) {
  if (!flag.values.empty()) return Completed::kValues;
  if (flag.type == "FILE" || flag.type == "PROFILE") return Completed::kFiles;
  if (flag.type == "DIR") return Completed::kFolders;
  return Completed::kNothing;
}

// Within single quotes of bash and zsh.
std::string InQuotes(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}});
}

// "a | b)" of the flags that are completed in this way.
std::string CaseOf(Completed completed) {
  std::vector<std::string> names;
  for (const FlagDescription& flag : DescribeFlags()) {
    if (!flag.type.empty() && CompletedBy(flag) == completed) {
      names.push_back(flag.name);
      if (!flag.short_name.empty()) names.push_back(flag.short_name);
    }
  }
  return absl::StrCat("    ", absl::StrJoin(names, " | "), ")");
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.emplace_back(command.name);
  return names;
}

// Files are left to readline, which knows how names are quoted. Bash splits
// words at "=" and ":" and replaces only what follows them; so the script looks
// at the line itself.
std::string BashScript() {
  std::vector<std::string> names;
  std::string values;
  for (const FlagDescription& flag : DescribeFlags()) {
    names.push_back(absl::StrCat("-", flag.name));
    if (flag.values.empty()) continue;
    absl::StrAppend(&values, "    ", flag.name, ") words='",
                    absl::StrJoin(flag.values, " "), "' ;;\n");
  }
  return absl::StrCat(
      "# Completion of kv-compress for bash.\n"
      "_kv_compress() {\n"
      "  local line=${COMP_LINE:0:COMP_POINT} current previous='' words=''\n"
      "  local -a all\n"
      "  COMPREPLY=()\n"
      "  read -r -a all <<<\"$line\"\n"
      "  [[ $line == *' ' ]] && all+=('')\n"
      "  current=${all[-1]}\n"
      "  ((${#all[@]} > 1)) && previous=${all[-2]}\n"
      "  if [[ $current == -*=* ]]; then\n"
      "    previous=${current%%=*} current=${current#*=}\n"
      "  fi\n"
      "  previous=${previous/#--/-}\n"
      "  [[ $previous == -* ]] && case ${previous#-} in\n",
      values, CaseOf(Completed::kFiles), " return ;;\n",
      CaseOf(Completed::kFolders),
      "\n"
      "      compopt -o filenames +o default\n"
      "      mapfile -t COMPREPLY < <(compgen -d -- \"$current\")\n"
      "      return\n"
      "      ;;\n",
      CaseOf(Completed::kNothing),
      "\n"
      "      compopt +o default\n"
      "      return\n"
      "      ;;\n"
      "  esac\n"
      "  if [[ $current == -* && -z $words ]]; then\n"
      "    words='",
      absl::StrJoin(names, " "),
      "'\n"
      "    [[ $current == --* ]] && words=\"-${words// -/ --}\"\n"
      "  fi\n"
      "  if ((${#all[@]} == 2)) && [[ ${all[1]} == [a-z]* ]]; then\n"
      "    compopt -o filenames\n"
      "    mapfile -t COMPREPLY < <(\n"
      "      compgen -W '",
      absl::StrJoin(CommandNames(), " "),
      "' -- \"$current\"\n"
      "      compgen -f -- \"$current\"\n"
      "    )\n"
      "    return\n"
      "  fi\n"
      "  [[ -n $words ]] || return\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "  if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then\n"
      "    COMPREPLY=(\"${COMPREPLY[@]#\"${current%:*}:\"}\")\n"
      "  fi\n"
      "}\n"
      "complete -o default -F _kv_compress kv-compress\n");
}

// What follows the name of a flag in its specification: the text, and how its
// value is completed.
std::string ZshSpec(const FlagDescription& flag) {
  const std::string text = absl::StrReplaceAll(
      InQuotes(flag.text), {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
  std::string spec = absl::StrCat("[", text, "]");
  if (flag.type.empty()) return spec;
  const std::string type =
      absl::AsciiStrToLower(absl::StrReplaceAll(flag.type, {{":", "\\:"}}));
  absl::StrAppend(&spec, ":", type, ":");
  switch (CompletedBy(flag)) {
    case Completed::kValues:
      absl::StrAppend(
          &spec, "(",
          absl::StrReplaceAll(absl::StrJoin(flag.values, " "), {{":", "\\:"}}),
          ")");
      break;
    case Completed::kFiles:
      spec += "_files";
      break;
    case Completed::kFolders:
      spec += "_files -/";
      break;
    case Completed::kNothing:
      spec += " ";
      break;
  }
  return spec;
}

std::string ZshScript() {
  std::string specs;
  for (const FlagDescription& flag : DescribeFlags()) {
    for (const std::string& name : {flag.name, flag.short_name}) {
      if (name.empty()) continue;
      absl::StrAppend(&specs, " \\\n    '*-", name, ZshSpec(flag), "'");
    }
  }
  return absl::StrCat(
      "#compdef kv-compress\n"
      "# Completion of kv-compress for zsh.\n"
      "_kv-compress() {\n"
      "  _arguments",
      specs, " \\\n    '1:command or file:{_alternative \"commands:command:(",
      absl::StrJoin(CommandNames(), " "),
      ")\" \"files:file:_files\"}' \\\n    '*:file:_files'\n"
      "}\n"
      "if [[ $funcstack[1] == _kv-compress ]]; then\n"
      "  _kv-compress \"$@\"\n"
      "else\n"
      "  compdef _kv-compress kv-compress\n"
      "fi\n");
}

std::string FishScript() {
  std::string script = absl::StrCat(
      "# Completion of kv-compress for fish.\n"
      "complete -c kv-compress -n __fish_use_subcommand -a '",
      absl::StrJoin(CommandNames(), " "), "'\n");
  for (const FlagDescription& flag : DescribeFlags()) {
    absl::StrAppend(
        &script, "complete -c kv-compress",
        flag.short_name.empty() ? "" : absl::StrCat(" -s ", flag.short_name),
        " -o ", flag.name, " -d '",
        absl::StrReplaceAll(flag.text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
    switch (CompletedBy(flag)) {
      case Completed::kValues:
        absl::StrAppend(&script, " -x -a '", absl::StrJoin(flag.values, " "),
                        "'");
        break;
      case Completed::kFiles:
        script += " -r -F";
        break;
      case Completed::kFolders:
        script += " -x -a '(__fish_complete_directories)'";
        break;
      case Completed::kNothing:
        if (!flag.type.empty()) script += " -x";
        break;
    }
    script += "\n";
  }
  return script;
}

// Text of roff: what would be taken for a request or an escape is not.
std::string Roff(absl::string_view text) {
  std::string roff = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  std::vector<std::string> lines = absl::StrSplit(roff, '\n');
  for (std::string& line : lines) {
    if (!line.empty() && (line[0] == '.' || line[0] == '\'')) {
      line.insert(0, "\\&");
    }
  }
  return absl::StrJoin(lines, "\n");
}

void AppendFlag(const FlagDescription& flag, std::string* page) {
  absl::StrAppend(page, ".TP\n.B ", Roff(absl::StrCat("-", flag.name)));
  if (!flag.short_name.empty()) {
    absl::StrAppend(page, "\\fR, \\fB",
                    Roff(absl::StrCat("-", flag.short_name)));
  }
  if (!flag.type.empty()) {
    absl::StrAppend(page, " \\fI", Roff(flag.type), "\\fR");
  }
  absl::StrAppend(page, "\n", Roff(flag.text), ".\n");
  if (!flag.environment.empty()) {
    absl::StrAppend(page, "Also from the environment: \\fB",
                    Roff(flag.environment), "\\fR.\n");
  }
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(absl::string_view shell) {
  if (shell == "bash") return BashScript();
  if (shell == "zsh") return ZshScript();
  if (shell == "fish") return FishScript();
  return InvalidValue(shell, "completion", "must be bash, zsh or fish");
}

std::string ManualPage() {
  std::string page = absl::StrCat(
      ".TH KV\\-COMPRESS 1 \"\" \"KV Compress ", kVersion,
      "\" \"User Commands\"\n"
      ".SH NAME\n"
      "kv\\-compress \\- compress KV caches with measured quality\n"
      ".SH SYNOPSIS\n");
  absl::string_view separator;
  for (const Command& command : Commands()) {
    absl::StrAppend(&page, separator, ".B ",
                    Roff(absl::StrCat("kv-compress ", command.name)), "\n",
                    Roff(command.arguments), "\n");
    separator = ".br\n";
  }
  absl::StrAppend(
      &page, ".SH DESCRIPTION\n",
      Roff("Compresses the KV caches of LLM inference, which are safetensors "
           "files, measures what that costs in quality, and restores them. The "
           "work is done in this process, or by a server that -server names."),
      "\n.PP\n", Roff(DescribeCommands()), "\n.PP\n", Roff(DescribeOutputs()),
      "\n.SH OPTIONS\n");
  std::string group;
  for (const FlagDescription& flag : DescribeFlags()) {
    if (flag.group != group) {
      absl::StrAppend(&page, ".SS ", Roff(flag.group), "\n");
    }
    group = flag.group;
    AppendFlag(flag, &page);
  }
  absl::StrAppend(&page, ".SH CODECS\n.nf\n", Roff(DescribeCodecs()),
                  ".fi\n.SH EXIT STATUS\n", Roff(DescribeExitStatus()),
                  "\n.SH EXAMPLES\n");
  for (const Example& example : Examples()) {
    absl::StrAppend(&page, ".PP\n", Roff(example.text), ":\n.PP\n.RS\n.nf\n",
                    Roff(example.command), "\n.fi\n.RE\n");
  }
  return page;
}

}  // namespace kvcompress::cli
