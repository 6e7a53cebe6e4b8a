# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The manual page (man(7)) and the completion for bash, both made from the command line's parser."""

from __future__ import annotations

import argparse
import re

from ..model.values.records import NamedTuple

EXIT_STATUS = (
    ("0", "done, or nothing differs"),
    (
        "1",
        "an error: the message says the place, the value and what to do; nothing else than what it names was changed",
    ),
    ("2", "something differs, is refused or is left to do"),
)
FILES = (
    ("/etc/corral/profile.json", "the declared profile"),
    ("/run/corral/status.json", "what the last tick saw"),
    ("/var/lib/corral", "what was there before Corral, grants, and the profiles applied before"),
)
ABOUT = (
    "Shows and applies the resource profile of this node: pools of CPUs, hugepages and their mounts, limits of "
    "tasks, workloads with CPUs of their own, garbage collection. Each command explains itself with"
)
# Options and arguments whose value is a file or a folder.
PATHS = ("FILE", "TREE", "BEFORE", "AFTER")


class Command(NamedTuple):
    """A command of the parser. Hidden options are left out."""

    name: str
    text: str
    options: tuple[argparse.Action, ...]
    arguments: tuple[argparse.Action, ...]


def commands(top: argparse.ArgumentParser) -> list[Command]:
    """The commands of a parser in their order."""
    groups = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    rows = []
    for group in groups:
        for name, parser in group.choices.items():
            shown = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
            options = tuple(action for action in shown if action.option_strings)
            arguments = tuple(action for action in shown if not action.option_strings)
            rows.append(Command(name, parser.description or "", options, arguments))
    return rows


# The manual page


def man_page(top: argparse.ArgumentParser, version: str) -> str:
    """The manual page as roff."""
    rows = [
        f'.TH CORRAL 8 "" "corral.node {roff(version)}" "Corral"',
        ".SH NAME", f"corral \\- {roff(sentence(top.description or ''))}",
        ".SH SYNOPSIS", ".B corral", "COMMAND [OPTIONS]",
        ".SH DESCRIPTION",
        ABOUT,
        ".BR \\-\\-help .",
        ".SH COMMANDS",
    ]  # fmt: skip
    for command in commands(top):
        usage = " ".join(map(metavar, command.arguments))
        rows += [".SS " + roff(f"corral {command.name} {usage}".strip()), roff(sentence(command.text)) + "."]
        for option in command.options:
            value = f" {metavar(option)}" if takes_value(option) else ""
            rows += [".TP", f".B {roff(', '.join(option.option_strings) + value)}", roff(option.help or "")]
    for heading, table in (("EXIT STATUS", EXIT_STATUS), ("FILES", FILES)):
        rows.append(f".SH {heading}")
        for name, text in table:
            rows += [".TP", f".B {roff(name)}", roff(text)]
    return "\n".join(rows) + "\n"


def roff(text: str) -> str:
    """A text as roff: hyphens and backslashes are escaped, and no line begins like a request of roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("%%", "%")
    return re.sub(r"(?m)^([.'])", r"\\&\1", escaped)


def sentence(text: str) -> str:
    """A text without its full stop."""
    return text.rstrip(".")


def metavar(action: argparse.Action) -> str:
    """The word that stands for the value of an option or argument."""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def takes_value(option: argparse.Action) -> bool:
    """Whether an option has a value."""
    return option.nargs != 0


# Completion


def bash_completion(top: argparse.ArgumentParser) -> str:
    """A script for bash that completes commands, options, choices, and the names of files."""
    known = commands(top)
    cases = []
    for command in known:
        words = [word for option in command.options for word in option.option_strings]
        files = any(metavar(argument) in PATHS for argument in command.arguments)
        choices = [str(choice) for argument in command.arguments for choice in argument.choices or ()]
        cases.append(
            f"    {command.name}) words='{' '.join([*choices, *words, '--help'])}' files={'yes' if files else ''} ;;"
        )
    values = {
        f"    {'|'.join(option.option_strings)}) {value_of(option)}; return ;;"
        for command in known
        for option in command.options
        if takes_value(option)
    }
    names = " ".join(command.name for command in known)
    return "\n".join([
        "# Completion of corral for bash. Made by: corral completion",
        "_corral() {",
        "  local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} command= words= files= one",
        "  for one in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do",
        "    case $one in -*) ;; *) command=$one; break ;; esac",
        "  done",
        "  COMPREPLY=()",
        "  case $last in",
        *sorted(values),
        "  esac",
        "  case $command in",
        f"    '') words='{names} --help --version' ;;",
        *cases,
        "  esac",
        "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))",
        "  if [ -n \"$files\" ]; then COMPREPLY+=($(compgen -f -- \"$word\")); fi",
        "}",
        "complete -o filenames -F _corral corral",
        "",
    ])  # fmt: skip


def value_of(option: argparse.Action) -> str:
    """The shell command that completes the value of an option."""
    if metavar(option) in PATHS:
        return 'COMPREPLY=($(compgen -f -- "$word"))'
    if option.choices:
        return f"COMPREPLY=($(compgen -W '{' '.join(map(str, option.choices))}' -- \"$word\"))"
    return ":"
