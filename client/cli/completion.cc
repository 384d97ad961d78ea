// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/completion.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/profile_flags.h"
#include "client/cli/raw_flags.h"
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
    }
  }
  return absl::StrCat("    ", absl::StrJoin(names, " | "), ")");
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
      "  [[ -n $words ]] || return\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "  if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then\n"
      "    COMPREPLY=(\"${COMPREPLY[@]#\"${current%:*}:\"}\")\n"
      "  fi\n"
      "}\n"
      "complete -o default -F _kv_compress kv-compress\n");
}

std::string ZshScript() {
  std::string specs;
  for (const FlagDescription& flag : DescribeFlags()) {
    const std::string text = absl::StrReplaceAll(
        InQuotes(flag.text), {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
    absl::StrAppend(&specs, " \\\n    '*-", flag.name, "[", text, "]");
    if (!flag.type.empty()) {
      const std::string type =
          absl::AsciiStrToLower(absl::StrReplaceAll(flag.type, {{":", "\\:"}}));
      absl::StrAppend(&specs, ":", type, ":");
      switch (CompletedBy(flag)) {
        case Completed::kValues:
          absl::StrAppend(&specs, "(",
                          absl::StrReplaceAll(absl::StrJoin(flag.values, " "),
                                              {{":", "\\:"}}),
                          ")");
          break;
        case Completed::kFiles:
          specs += "_files";
          break;
        case Completed::kFolders:
          specs += "_files -/";
          break;
        case Completed::kNothing:
          specs += " ";
          break;
      }
    }
    specs += "'";
  }
  return absl::StrCat(
      "#compdef kv-compress\n"
      "# Completion of kv-compress for zsh.\n"
      "_kv-compress() {\n"
      "  _arguments",
      specs,
      " \\\n    '*:file:_files'\n"
      "}\n"
      "if [[ $funcstack[1] == _kv-compress ]]; then\n"
      "  _kv-compress \"$@\"\n"
      "else\n"
      "  compdef _kv-compress kv-compress\n"
      "fi\n");
}

std::string FishScript() {
  std::string script = "# Completion of kv-compress for fish.\n";
  for (const FlagDescription& flag : DescribeFlags()) {
    absl::StrAppend(
        &script, "complete -c kv-compress -o ", flag.name, " -d '",
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
      ".SH SYNOPSIS\n"
      ".B kv\\-compress\n"
      "[\\fIflags\\fR] \\fIfile\\fR ... \\fB\\-output\\fR \\fIfile\\fR|"
      "\\fIfolder\\fR\n"
      ".br\n"
      ".B kv\\-compress \\-decompress\n"
      "[\\fIflags\\fR] \\fIfile\\fR ... \\fB\\-output\\fR \\fIfile\\fR|"
      "\\fIfolder\\fR\n"
      ".br\n"
      ".B kv\\-compress\n"
      "\\fB\\-metrics\\-only\\fR|\\fB\\-info\\fR|\\fB\\-verify\\fR "
      "[\\fIflags\\fR] \\fIfile\\fR ...\n"
      ".br\n"
      ".B kv\\-compress \\-compare\n"
      "\\fIfile\\fR [\\fIflags\\fR]\n"
      ".SH DESCRIPTION\n",
      Roff("Compresses the KV caches of LLM inference, which are safetensors "
           "files, measures what that costs in quality, and restores them. The "
           "work is done in this process, or by a server that -server names."),
      "\n.PP\n", Roff(DescribeOutputs()), "\n.SH OPTIONS\n");
  for (const FlagDescription& flag : DescribeFlags()) AppendFlag(flag, &page);
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
