"""``bpt completion``: print a script by which a shell completes commands, flags and files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bpt.cli.options import Parser

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "let a shell complete bpt's commands and flags"
DESCRIPTION = """\
Prints a script by which a shell completes bpt's commands, flags and files. To install it, type:

  bash    echo 'eval "$(bpt completion bash)"' >> ~/.bashrc
  zsh     echo 'eval "$(bpt completion zsh)"' >> ~/.zshrc      after compinit
  fish    bpt completion fish > ~/.config/fish/completions/bpt.fish
"""

_BASH = """\
_bpt() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} known
  case ${{COMP_WORDS[1]}} in
{cases}
    *) known="{commands}" ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && known="{commands}"
  COMPREPLY=($(compgen -W "$known" -- "$word"))
  [ "$COMP_CWORD" -gt 1 ] && [[ $word != -* ]] && COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _bpt bpt
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt completion``."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish", help="the shell")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt completion``: print the completion script of a shell."""
    whole: Parser = arguments.whole
    known = {name: _words(parser) for name, parser in whole.commands().items()}
    print(script(arguments.shell, known, whole.helps()), end="")


def script(shell: str, known: Mapping[str, Sequence[str]], helps: Mapping[str, str]) -> str:
    """Return the completion script of ``shell``.

    Args:
        shell: bash, zsh or fish.
        known: command → its flags and sub-commands.
        helps: command → its short help.
    """
    if shell == "fish":
        lines = [f"complete -c bpt -n __fish_use_subcommand -f -a {name} -d '{helps[name]}'" for name in known]
        for name, words in known.items():
            lines += [
                f"complete -c bpt -n '__fish_seen_subcommand_from {name}' "
                + (f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}")
                for word in words
            ]
        return "\n".join(lines) + "\n"
    cases = "\n".join(f'    {name}) known="{" ".join(words)}" ;;' for name, words in known.items())
    bash = _BASH.format(cases=cases, commands=" ".join(known))
    return bash if shell == "bash" else f"autoload -U bashcompinit && bashcompinit\n{bash}"


def _words(parser: Parser) -> list[str]:
    """Return the flags and commands of ``parser``, and the flags of those commands."""
    inner = parser.commands()
    found = [*parser.long_flags(), *inner, *(word for command in inner.values() for word in _words(command))]
    return list(dict.fromkeys(found))
