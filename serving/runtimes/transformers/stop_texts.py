"""Finds the texts that end a generation, which may begin in one part of the text and end in another. Pure."""

from collections.abc import Sequence


class StopTexts:
    """Holds back the end of a text for as long as this end may be the beginning of a stop text."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """Return the text that is certain now, and whether a stop text follows it."""
        if not self._stops:
            return text, False
        text = self._held + text
        places = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if places:
            self._held = ""
            return text[: min(places)], True
        kept = max((self._overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept], False

    def rest(self) -> str:
        """Return the text that is held, at the end of the generation."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Return the length of the longest end of `text` that begins `stop`."""
        return next(
            (size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0
        )
