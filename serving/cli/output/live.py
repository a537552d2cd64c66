"""A text on a terminal that is replaced by later ones."""

from collections.abc import AsyncIterator


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    from rich.console import Console

    return Console().is_terminal


async def show(texts: AsyncIterator[str]) -> None:
    """Print each text in the place of the one before."""
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, vertical_overflow="visible") as live:
        async for text in texts:
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
