"""`slipway completion`: the script of each shell, and the command that the scripts call at each Tab."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

_BASH = r"""
_slipway() {
    local IFS=$'\n'
    COMPREPLY=($("$1" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]] && compopt -o nospace
    return 0
}
complete -o default -F _slipway slipway
"""
_ZSH = r"""
#compdef slipway
_slipway() {
    local -a candidates
    candidates=("${(@f)$(slipway __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    candidates=(${candidates:#})
    (( ${#candidates} )) || { _files; return }
    compadd -S '' -- ${(M)candidates:#*[=/]}
    compadd -- ${candidates:#*[=/]}
}
compdef _slipway slipway
"""
_FISH = r"""
function __slipway_complete
    set -l words (commandline -opc)
    set -l candidates (slipway __complete fish $words[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c slipway -f -a '(__slipway_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell that reads the script.")],
) -> None:
    """Print the script that lets a shell complete commands, kinds, names and arms.

    For this session of bash: source <(slipway completion bash).
    """
    print(_SCRIPTS[shell].strip())


def answer(arguments: Sequence[str]) -> list[str]:
    """Return the candidates for `SHELL WORD...` or `bash LINE BREAKS`; fewer without an API, no error."""
    from serving.cli.commands import COMMANDS
    from serving.cli.completion.command_line import completions

    shell, *words = arguments
    cut = 0
    if shell == "bash":
        line, breaks = words
        words = _words(line)[1:]
        cut = _replaced_from(words[-1], breaks) if words else 0
    try:
        return [candidate[cut:] for candidate in completions(COMMANDS, words)] if words else []
    except Exception:  # noqa: BLE001 an error message would be printed into the command line
        return []


def _words(line: str) -> list[str]:
    """Split a line at its spaces, without the quotes and backslashes; the last word ends at the cursor."""
    words = re.findall(r"""((?:\\.|"[^"]*"?|'[^']*'?|[^\s"'\\])+)""", line)
    plain = [re.sub(r"""\\(.)|["']""", r"\1", word) for word in words]
    return plain if plain and not re.search(r"(?<!\\)\s$", line) else [*plain, ""]


def _replaced_from(word: str, breaks: str) -> int:
    """Return where bash starts to replace a word: after the last of its word breaks."""
    return max((word.rfind(character) + 1 for character in breaks if not character.isspace()), default=0)


def main(arguments: Sequence[str]) -> None:
    """Print the candidates, one a line."""
    for word in answer(arguments):
        print(word)
