"""Times of log lines."""

import itertools
import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.apiserver.pods import log_times
from serving.embedded.apiserver.pods.log_times import SECOND, LineFilter
from serving.embedded.kubelet.container.container_log import ContainerLog


def test_every_line_has_the_time_of_its_first_byte() -> None:
    log = b"one\ntwo\nthree"
    shown = LineFilter(None, show=True).apply(0, log, lambda offset: offset * SECOND + 5)
    assert shown == (
        b"1970-01-01T00:00:00.000000005Z one\n"
        b"1970-01-01T00:00:04.000000005Z two\n"
        b"1970-01-01T00:00:08.000000005Z three"
    )


def test_lines_from_before_the_time_are_dropped_entirely() -> None:
    assert (
        LineFilter(4 * SECOND, show=False).apply(0, b"one\ntwo\nthree", lambda at: at * SECOND)
        == b"two\nthree"
    )


@given(
    lines=st.lists(st.binary(max_size=4).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    since=st.integers(0, 40),
)
def test_the_result_does_not_depend_on_the_chunks(lines: list[bytes], cuts: list[int], since: int) -> None:
    log = b"\n".join(lines)
    expected = LineFilter(since, show=True).apply(0, log, lambda at: at)
    offsets = sorted({0, *(cut for cut in cuts if cut < len(log)), len(log)})
    line_filter = LineFilter(since, show=True)
    parts = [line_filter.apply(a, log[a:b], lambda at: at) for a, b in itertools.pairwise(offsets)]
    assert b"".join(parts) == expected


def test_lines_of_the_shim_have_times_after_rotation(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = ContainerLog(str(path), 100)
    for number in range(9):
        log.write(b"line %d\n" % number)
    log.close()
    older = path.with_name("0.log.1")
    all_times: list[int] = []
    for name in (older, path):
        with name.open("rb") as file:
            times = log_times.find(path, file)
            assert times is not None
            times.refresh()
            line_times = [times.at(offset) for offset in range(0, name.stat().st_size, 7)]
            assert None not in line_times
            all_times += [time for time in line_times if time is not None]
            times.close()
    assert all_times == sorted(all_times)
    assert sum(name.stat().st_size for name in tmp_path.iterdir()) <= 2 * (100 + 16)


def test_a_log_has_no_times_when_the_index_is_of_another_file(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text("a\n")
    path.with_name("0.log.times").write_bytes(struct.pack("<qqqq", path.stat().st_ino + 1, 0, 0, 5))
    with path.open("rb") as file:
        assert log_times.find(path, file) is None


def test_a_partial_record_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text("a\nb\n")
    index = path.with_name("0.log.times")
    head = struct.pack("<qqqq", path.stat().st_ino, 0, 0, 5)
    index.write_bytes(head + struct.pack("<q", 2))
    with path.open("rb") as file:
        times = log_times.find(path, file)
    assert times is not None
    times.refresh()
    assert times.at(2) == 5
    with index.open("ab") as more:
        more.write(struct.pack("<q", 9))
    times.refresh()
    assert times.at(2) == 9
    times.close()
