"""``eagerflow completion``: completion scripts for shells, made from the parser."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow.cli import make_parser
from eagerflow.errors import ArgumentError

__all__ = ["add_completion", "read_commands"]

FILE, FOLDER, TEXT = "file", "folder", "text"
_WORD = re.compile(r"[\w.+=-]+")


class Argument(NamedTuple):
    """An option with its ``flags``, or, without flags, a positional argument.

    ``kind`` is "" for a flag without a value, ``FILE``, ``FOLDER``, or ``TEXT``, possibly with
    ``choices``; ``optional`` and ``repeated`` describe the value.
    """

    flags: tuple[str, ...]
    help: str
    kind: str
    choices: tuple[str, ...]
    optional: bool
    repeated: bool
    name: str


class Command(NamedTuple):
    """A command with its options and positional arguments."""

    name: str
    help: str
    options: tuple[Argument, ...]
    places: tuple[Argument, ...]


def add_completion(commands: Any) -> None:
    """Add the command to the parser's commands."""
    completion = commands.add_parser(
        "completion", help="a script by which a shell completes this command"
    )
    completion.add_argument(
        "shell", choices=[*SCRIPTS], metavar="SHELL", help=f"one of {', '.join(SCRIPTS)}"
    )
    completion.set_defaults(run=lambda options: _print(options.shell))


def _print(shell: str) -> int:
    print("\n".join(SCRIPTS[shell](read_commands(make_parser()))))
    return 0


# Reading the parser ------------------------------------------------------------------------------


def read_commands(parser: argparse.ArgumentParser) -> list[Command]:
    """The commands of a parser; ArgumentError for words with a meaning in a shell.

    >>> from eagerflow.cli import make_parser
    >>> [command.name for command in read_commands(make_parser())][:3]
    ['demo', 'devices', 'show']
    """
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in found._choices_actions}
    return [_command(name, helps[name], own) for name, own in found.choices.items()]


def _command(name: str, help: str, parser: argparse.ArgumentParser) -> Command:
    arguments = [_argument(action, parser) for action in parser._actions]
    words = [name, *(word for a in arguments for word in (*a.flags, *a.choices))]
    odd = [word for word in words if not _WORD.fullmatch(word)]
    if odd:
        raise ArgumentError(f"{odd[0]!r} cannot stand in a shell's script", op="completion")
    options = tuple(a for a in arguments if a.flags)
    return Command(name, help, options, tuple(a for a in arguments if not a.flags))


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> Argument:
    name = str(action.metavar or action.dest).upper()
    kind = TEXT
    if action.nargs == 0:
        kind = ""
    elif action.type is Path:
        kind = FOLDER if name == "FOLDER" else FILE
    help = parser._get_formatter()._expand_help(action) if action.help else ""
    return Argument(
        tuple(action.option_strings),
        help,
        kind,
        tuple(map(str, action.choices or ())),
        action.nargs == "?",
        action.nargs == "+" or isinstance(action, argparse._AppendAction),
        name,
    )


# bash --------------------------------------------------------------------------------------------

_BASH = """\
# Completion of eagerflow for bash: eval "$(eagerflow completion bash)"
_eagerflow() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local command= words= i
    COMPREPLY=()
    # --option=value comes as three words.
    if [[ $current == = ]]; then
        current=
    elif [[ $previous == = && $COMP_CWORD -gt 2 ]]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} != -* ]]; then
            command=${COMP_WORDS[i]}
            break
        fi
    done
    case "$command $previous" in"""
_BASH_MIDDLE = """\
    esac
    case "$command" in"""
_BASH_END = """\
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
# Where nothing is said, readline completes the names of files.
complete -o default -F _eagerflow eagerflow"""
_BASH_VALUES = {
    FILE: "return ;;",
    FOLDER: "compopt -o dirnames +o default 2>/dev/null; return ;;",
    TEXT: "compopt +o default 2>/dev/null; return ;;",
}


def _bash(commands: Sequence[Command]) -> Iterator[str]:
    yield _BASH
    for command in commands:
        for option in command.options:
            if option.kind and not option.optional:
                cases = " | ".join(f"'{command.name} {flag}'" for flag in option.flags)
                yield f"        {cases}) {_bash_value(option)}"
    yield _BASH_MIDDLE
    yield f"        '') words='{' '.join(['--help', *(c.name for c in commands)])}' ;;"
    for command in commands:
        flags = " ".join(flag for option in command.options for flag in option.flags)
        yield f"        {command.name}) words='{flags}'"
        if command.places:
            choices = " ".join(word for place in command.places for word in place.choices)
            found = f"words='{choices}'" if choices else "return"
            yield f"            [[ $current == -* ]] || {found}"
        yield "            ;;"
    yield _BASH_END


def _bash_value(option: Argument) -> str:
    if option.choices:
        words = " ".join(option.choices)
        return f"""COMPREPLY=($(compgen -W '{words}' -- "$current")); return ;;"""
    return _BASH_VALUES[option.kind]


# zsh ---------------------------------------------------------------------------------------------

_ZSH = """\
#compdef eagerflow
# Completion of eagerflow for zsh: eval "$(eagerflow completion zsh)", after compinit; or a file
# _eagerflow in a folder of $fpath.
_eagerflow() {
    local curcontext="$curcontext" state line
    local -a commands
    typeset -A opt_args
    commands=("""
_ZSH_MIDDLE = """\
    )
    _arguments -C '(- *)'{-h,--help}'[show help]' '1: :->command' '*:: :->arguments'
    case $state in
        command) _describe -t commands command commands ;;
        arguments)
            case $line[1] in"""
_ZSH_END = """\
            esac
            ;;
    esac
}
if [[ ${funcstack[1]} == _eagerflow ]]; then
    _eagerflow "$@"
else
    compdef _eagerflow eagerflow
fi"""
_ZSH_VALUES = {FILE: "_files", FOLDER: "_files -/", TEXT: " "}


def _zsh(commands: Sequence[Command]) -> Iterator[str]:
    yield _ZSH
    for command in commands:
        yield f"        {shlex.quote(_colons(command.name) + ':' + _colons(command.help))}"
    yield _ZSH_MIDDLE
    for command in commands:
        yield f"                {command.name}) _arguments -S \\"
        for option in command.options:
            for flag in option.flags:
                yield f"                    {shlex.quote(_zsh_option(option, flag))} \\"
        for number, place in enumerate(command.places, 1):
            at = "*" if place.repeated else f"{number}{':' * place.optional}"
            yield f"                    {shlex.quote(f'{at}:{_zsh_value(place)}')} \\"
        yield "                    ;;"
    yield _ZSH_END


def _zsh_option(option: Argument, flag: str) -> str:
    end = f"[{_brackets(option.help)}]"
    repeated = "*" * option.repeated
    if not option.kind:
        return f"{repeated}{flag}{end}"
    sign = "=" if flag.startswith("--") else "+"
    return f"{repeated}{flag}{sign}{end}:{':' * option.optional}{_zsh_value(option)}"


def _zsh_value(argument: Argument) -> str:
    values = f"({' '.join(argument.choices)})" if argument.choices else _ZSH_VALUES[argument.kind]
    return f"{_colons(argument.name)}:{values}"


def _colons(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _brackets(text: str) -> str:
    return re.sub(r"([\\\[\]])", r"\\\1", text)


# fish --------------------------------------------------------------------------------------------

_FISH = """\
# Completion of eagerflow for fish: eagerflow completion fish | source
function __eagerflow_is
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"
end
complete -c eagerflow -f
complete -c eagerflow -n '__eagerflow_is ""' -s h -l help -d 'show help'"""
_FISH_VALUES = {FILE: "-r -F", FOLDER: "-x -a '(__fish_complete_directories)'", TEXT: "-x"}


def _fish(commands: Sequence[Command]) -> Iterator[str]:
    yield _FISH
    for command in commands:
        words = f"-a {command.name} -d {_single(command.help)}"
        yield f"complete -c eagerflow -n '__eagerflow_is \"\"' {words}"
    for command in commands:
        where = f"complete -c eagerflow -n '__eagerflow_is {command.name}'"
        for option in command.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in option.flags
            )
            yield f"{where} {flags}{_fish_value(option)} -d {_single(option.help)}"
        for values in dict.fromkeys(map(_fish_place, command.places)):
            yield f"{where} {values}"


def _fish_place(place: Argument) -> str:
    return "-F" if place.kind == FILE else f"-a {_single(' '.join(place.choices))}"


def _fish_value(option: Argument) -> str:
    if option.choices:
        return f" -x -a {_single(' '.join(option.choices))}"
    # An optional value does not have to follow.
    return "" if option.optional or not option.kind else f" {_FISH_VALUES[option.kind]}"


def _single(text: str) -> str:
    """Text in single quotes, in which fish has two escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[Sequence[Command]], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
