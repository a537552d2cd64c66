"""Recognises pickles of every protocol by walking their opcodes. Nothing is unpickled. Pure.

`pickletools` has the table of opcodes: the length of an argument, and the values that the opcode takes
from the stack and puts on it. The stack's depth distinguishes a pickle from text that happens to consist of
opcodes.
"""

import pickletools
import re
from typing import NamedTuple

from serving.images.file_formats.content import Content, Unexamined

MAX_OPCODES = 20_000
"""Most opcodes that are walked, in 0.1 s; a program that goes on behind them counts as a pickle."""
_BLOCK = 4 * 1024
"""Bytes of a line that are read at a time."""
LONGEST_LINE = 1024 * 1024
"""Bytes; a file with a longer line as an argument counts as a pickle (`Unexamined`)."""
_IMPORTS = frozenset({"GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"})
"""Opcodes that import the objects that the pickle names."""
_EFFECTS = frozenset(
    {"REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"}
    | {"SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS"}
)
"""Opcodes that call or change an imported object. A changed `builtins.__dict__` can make an import a call."""
_NAMED = frozenset({"GLOBAL", "INST"})
"""Opcodes with two lines as their argument: a module, and a name in it."""
_SPACE = re.compile(rb"\s")
_NO_MODULE = re.compile(rb"[^\w.\-\x80-\xff]")
"""A byte that no name of a module has: an unpickler fails at such a name, but text may have it."""
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
"""Bytes of the length that stands before an argument."""


class _Opcode(NamedTuple):
    name: str
    argument: int
    """Bytes of the argument, or one of pickletools' negative constants."""
    takes: int
    """Items that it takes from the stack; with a mark, those below the mark."""
    takes_mark: bool
    """Whether it takes everything down to the topmost mark."""
    gives: int
    """Items that it puts on the stack."""


def _table() -> dict[bytes, _Opcode]:
    """Return the opcodes by their byte."""
    table = {}
    for opcode in pickletools.opcodes:
        before = list(opcode.stack_before)
        takes_mark = pickletools.markobject in before
        takes = before.index(pickletools.markobject) if takes_mark else len(before)
        table[opcode.code.encode("latin-1")] = _Opcode(
            name=opcode.name,
            argument=0 if opcode.arg is None else opcode.arg.n,
            takes=takes,
            takes_mark=takes_mark,
            gives=len(opcode.stack_after),
        )
    return table


_OPCODES = _table()


class _Stack:
    """The number of items on the unpickler's stack, without the items."""

    def __init__(self) -> None:
        self._depth = 0
        self._marks: list[int] = []
        """Depth of the stack at each mark, the topmost mark last."""

    def apply(self, opcode: _Opcode) -> bool:
        """Apply the opcode to the stack; False where an unpickler would fail."""
        if opcode.name == "MARK":
            self._marks.append(self._depth)
            return True
        # Without an item above the topmost mark, POP takes the mark.
        if opcode.name == "POP" and self._marks and self._marks[-1] == self._depth:
            self._marks.pop()
            return True
        if opcode.takes_mark:
            if not self._marks:
                return False
            self._depth = self._marks.pop()
        items_above_mark = self._depth - (self._marks[-1] if self._marks else 0)
        if items_above_mark < opcode.takes:
            return False
        self._depth += opcode.gives - opcode.takes
        return True


def is_pickle(content: Content) -> bool:
    """Whether an unpickler that reads this file from its beginning would call or change an imported object,
    or end after an import. A pickle that goes on behind the examined bytes counts.

    A pickle of protocol 2 and later with data alone counts too, as readers of this format unpickle it. An
    older pickle with data alone runs no code and does not count, as text may have the same bytes.
    """
    try:
        return _walk(content)
    except Unexamined:
        return True


def _walk(content: Content) -> bool:
    """Follow the opcodes until the answer of `is_pickle` is known.

    An import by a name without whitespace counts once the program ends; any import counts once an opcode
    calls or changes an object. Text may consist of other imports: `c` and a word, a line with spaces, `.`.
    """
    stack = _Stack()
    at = 0
    has_protocol = has_import = has_plain_import = False
    for _ in range(MAX_OPCODES):
        opcode = _OPCODES.get(content.read(at, 1))
        if opcode is None:
            return False
        end = _end_of_argument(content, at + 1, opcode)
        if end is None or not stack.apply(opcode):
            return False
        has_protocol |= opcode.name == "PROTO"
        if opcode.name in _IMPORTS:
            has_import = True
            has_plain_import |= not _has_space(content, at + 1, end - 1, opcode)
        if has_import and opcode.name in _EFFECTS:
            return True
        at = end
        if opcode.name == "STOP":
            if has_protocol or has_plain_import or at == content.size:
                return has_protocol or has_plain_import
            stack = _Stack()  # a program may load several pickles of a file, one after another
    return True


def _end_of_argument(content: Content, at: int, opcode: _Opcode) -> int | None:
    """Return the offset behind the opcode's argument; None if an unpickler would refuse the argument."""
    if opcode.name in _NAMED:
        return _end_of_names(content, at)
    if opcode.argument == pickletools.UP_TO_NEWLINE:
        return _end_of_line(content, at)
    length = opcode.argument
    if length < 0:
        prefix = _LENGTH_BYTES[length]
        length = prefix + int.from_bytes(content.read(at, prefix), "little")
    return at + length if at + length <= content.size else None


def _end_of_names(content: Content, at: int) -> int | None:
    """Return the offset behind two lines, a module and a name in it; None if an unpickler would refuse them.

    Only the module is checked, as the name may be any text: `unittest.mock.call` has every attribute.
    """
    for begin in range(at, at + LONGEST_LINE, _BLOCK):
        line, newline, _ = content.beginning(begin, _BLOCK).partition(b"\n")
        if _NO_MODULE.search(line):
            return None
        if newline:
            end = begin + len(line) + 1
            return _end_of_line(content, end) if end > at + 1 else None
        if len(line) < _BLOCK:
            break
    if begin + len(line) >= content.size:
        return None
    raise Unexamined


def _has_space(content: Content, at: int, end: int, opcode: _Opcode) -> bool:
    """Whether the lines of an import from `at` to `end`, a module and a name, have whitespace, as text has.

    False for an import whose name is on the stack, and for lines of more than `_BLOCK` bytes.
    """
    if opcode.name not in _NAMED or end - at > _BLOCK:
        return False
    return any(_SPACE.search(line) for line in content.read(at, end - at).split(b"\n"))


def _end_of_line(content: Content, at: int) -> int | None:
    """Return the offset behind a line; None if the file ends before the line does.

    Raises:
        Unexamined: the end of the line is not available, or is further than `LONGEST_LINE` bytes.
    """
    for begin in range(at, at + LONGEST_LINE, _BLOCK):
        block = content.beginning(begin, _BLOCK)
        if (place := block.find(b"\n")) >= 0:
            return begin + place + 1
        if begin + len(block) >= content.size:
            return None
        if len(block) < _BLOCK:
            break
    raise Unexamined
