"""`slipway completion` prints the script of a shell, which calls `slipway __complete` at each Tab."""

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
"""`__complete` gets the line up to the cursor, as bash splits words also at its word breaks, such as `=`. No
space follows a candidate that ends in `=` or `/`, as the user continues the word."""
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
"""`compadd -S ''` adds the candidates after which no space follows."""
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
    """Return the candidates for the last word of a command line; without an API fewer, and never an error.

    Args:
        arguments: those of `slipway __complete`: `bash`, the line up to the cursor and bash's word breaks; or
            the name of another shell, and the words after the program's name up to the cursor.
    """
    from serving.cli.commands import COMMANDS
    from serving.cli.completion.command_line import completions

    shell, *words = arguments
    replaced_from = 0
    if shell == "bash":
        line, breaks = words
        words = _words(line)[1:]
        replaced_from = _replaced_from(words[-1], breaks) if words else 0
    try:
        return [candidate[replaced_from:] for candidate in completions(COMMANDS, words)] if words else []
    except Exception:  # noqa: BLE001 an error message would be printed into the command line
        return []


def _words(line: str) -> list[str]:
    """Split a line that ends at the cursor into words without quotes and backslashes.

    After a space the last word is empty.
    """
    # A word has escaped characters, quoted parts, of which the last may be open, and other characters.
    quoted_words = re.findall(r"""((?:\\.|"[^"]*"?|'[^']*'?|[^\s"'\\])+)""", line)
    words = [re.sub(r"""\\(.)|["']""", r"\1", word) for word in quoted_words]
    is_after_space = re.search(r"(?<!\\)\s$", line) is not None
    return [*words, ""] if is_after_space or not words else words


def _replaced_from(word: str, breaks: str) -> int:
    """Return the position from which bash replaces the word: after the last word break in it."""
    return max((word.rfind(character) + 1 for character in breaks if not character.isspace()), default=0)


def main(arguments: Sequence[str]) -> None:
    """Print the candidates, one per line."""
    for candidate in answer(arguments):
        print(candidate)
