"""The records of the addresses of components' metrics."""

from pathlib import Path

from serving import metrics
from serving.data_dir import DataDir


def test_pages_are_those_of_valid_records(tmp_path: Path) -> None:
    where = DataDir(tmp_path)
    assert metrics.pages(where.pages) == []
    where.pages.mkdir(parents=True)
    where.metrics("gateway").write_text('{"port": 4711}')
    where.metrics("activator").write_text('{"port": 4712}')
    where.metrics("wildcard").write_text('{"host": "::", "port": 4713}')
    where.metrics("node").write_text('{"por')
    where.metrics("other").write_text("[]")
    pages = metrics.pages(where.pages)
    assert [(page.component, page.url) for page in pages] == [
        ("activator", "http://127.0.0.1:4712/metrics"),
        ("gateway", "http://127.0.0.1:4711/metrics"),
        ("wildcard", "http://[::1]:4713/metrics"),
    ]
