"""A parsed HTML page: its elements, attributes and text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parent: "Element | None" = None
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())


class HtmlPage(HTMLParser):
    """The elements of a page in the order of their start tags; their text includes that of children."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.unclosed: list[Element] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        parent = self.unclosed[-1] if self.unclosed else None
        element = Element(tag, {name: value or "" for name, value in attrs}, parent)
        self.elements.append(element)
        if tag not in VOID:
            self.unclosed.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed, f"</{tag}> ends nothing"
        assert self.unclosed[-1].tag == tag, f"</{tag}> where <{self.unclosed[-1].tag}> is open"
        self.unclosed.pop()

    def handle_data(self, data: str) -> None:
        for element in self.unclosed:
            element.pieces.append(data)

    def of(self, tag: str, **attributes: str) -> list[Element]:
        expected = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            e
            for e in self.elements
            if e.tag == tag and all(e.attributes.get(n) == v for n, v in expected.items())
        ]
