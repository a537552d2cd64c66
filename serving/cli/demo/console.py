"""The demo's output: lines, and on a terminal a spinner below them."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from serving import clock

INDENT = " " * 10


class Story:
    """Prints the steps with their times, and collects failed checks."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._started = clock.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None)
        self.failed: list[str] = []
        """The claims of the checks that did not hold."""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the start of the demo; each step's line begins with them."""
        return clock.monotonic() - self._started

    def step(self, text: str) -> None:
        """Begin a step."""
        self._print(Text.assemble("\n", (f"[{self.seconds:5.1f} s]", "dim"), " ", (text, "bold")))
        self._progress.reset(self._task, description="")

    def doing(self, text: str) -> None:
        """Show the awaited condition beside the spinner."""
        self._progress.update(self._task, description=text)

    def show(self, text: str) -> None:
        """Print below the step."""
        self._print(Text("\n".join(INDENT + line for line in text.splitlines())))

    def check(self, claim: str, *, holds: bool) -> None:
        """Print a check and whether it holds."""
        word = ("ok  ", "green") if holds else ("FAIL", "bold red")
        self._print(Text.assemble(INDENT, word, " ", claim))
        if not holds:
            self.failed.append(claim)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
