"""Exit codes, as listed in docs/cli.md, and the messages of failures."""

from enum import IntEnum

from serving import errors
from serving.cli.output import tables
from serving.resources import kinds


class Exit(IntEnum):
    """Exit codes of `slipway`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    INVALID = 6
    FORBIDDEN = 7
    INTERRUPTED = 130


def code(error: errors.SlipwayError) -> Exit:
    """Return the exit code for a failure."""
    match error:
        case errors.NotFound():
            return Exit.NOT_FOUND
        case errors.Conflict() | errors.AlreadyExists():
            return Exit.CONFLICT
        case errors.Unavailable() | errors.NoApi():
            return Exit.UNREACHABLE
        case errors.Invalid() | errors.ApiError(code=400) | errors.SpaceInvalid():
            return Exit.INVALID
        case errors.Forbidden():
            return Exit.FORBIDDEN
        case _:
            return Exit.FAILED


def words(error: errors.SlipwayError) -> str:
    """Return the message of a failure: cause, place and what to do; control characters are escaped."""
    return tables.printable_lines(_words(error))


def _words(error: errors.SlipwayError) -> str:
    text = str(error)
    if isinstance(error, errors.ApiError) and error.causes:
        lines = [
            f"  {cause.field}: {cause.message}" if cause.field else f"  {cause.message}"
            for cause in error.causes
        ]
        text = "\n".join([_before_causes(text, error.causes[0]), *lines])
    match error:
        case errors.Hung():
            hint = "Its process is stopped, stuck or overloaded: look at the process and at its log."
            return f"{text}\n{hint}"
        case errors.Unavailable():
            hint = "The API does not answer. Is it running? Start it with `slipway up`, or see --kubeconfig."
            return f"{text}\n{hint}"
        case errors.Conflict() if not isinstance(error, errors.AlreadyExists):
            hint = "Somebody else changed it or owns these fields: get it again, or use --force-conflicts."
            return f"{text}\n{hint}"
        case errors.NotFound(details={"kind": str(plural)}):
            kind = kinds.find(plural)
            where = "" if kind is not None and not kind.namespaced else " in this namespace, with -A in all"
            return f"{text}\n`slipway get {plural}` lists what there is{where}."
        case errors.Forbidden(code=401):
            hint = "The kubeconfig's token is not accepted; is it that of this server? See --kubeconfig."
            return f"{text}\n{hint}"
        case _:
            return text


def words_of_system(error: OSError) -> str:
    """Return the message of a failure of the operating system: the file if there is one, and its words.

    Control characters are escaped.
    """
    text = error.strerror or str(error) or type(error).__name__
    return tables.printable_lines(f"{error.filename}: {text}" if error.filename else text)


def _before_causes(message: str, first: errors.Cause) -> str:
    """Return a message of the API without its causes, such as `Model "a" is invalid`.

    The causes, of which `first` is the first, follow as `: [FIELD: MESSAGE, ...]`, or a single one as
    `: FIELD: MESSAGE`.
    """
    ends = [message.find(separator) for separator in (": [", f": {first.field}: ") if separator in message]
    return message[: min(ends, default=len(message))].splitlines()[0].rstrip(": ")
