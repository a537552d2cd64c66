"""Lines and their times."""

import itertools
import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.apiserver.pods import log_times
from serving.embedded.apiserver.pods.log_times import SECOND, Filter
from serving.embedded.kubelet.container.shim import Log


def test_every_line_has_the_time_of_its_first_byte() -> None:
    log = b"one\ntwo\nthree"
    shown = Filter(None, show=True).cut(0, log, lambda offset: offset * SECOND + 5)
    assert shown == (
        b"1970-01-01T00:00:00.000000005Z one\n"
        b"1970-01-01T00:00:04.000000005Z two\n"
        b"1970-01-01T00:00:08.000000005Z three"
    )


def test_lines_from_before_are_left_out_whole() -> None:
    assert Filter(4 * SECOND, show=False).cut(0, b"one\ntwo\nthree", lambda at: at * SECOND) == b"two\nthree"


@given(
    lines=st.lists(st.binary(max_size=4).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    cuts=st.lists(st.integers(0, 40), max_size=5),
    since=st.integers(0, 40),
)
def test_the_result_does_not_depend_on_how_the_log_is_read(
    lines: list[bytes], cuts: list[int], since: int
) -> None:
    log = b"\n".join(lines)
    whole = Filter(since, show=True).cut(0, log, lambda at: at)
    places = sorted({0, *(cut for cut in cuts if cut < len(log)), len(log)})
    piecewise = Filter(since, show=True)
    parts = [piecewise.cut(a, log[a:b], lambda at: at) for a, b in itertools.pairwise(places)]
    assert b"".join(parts) == whole


def test_lines_of_the_shim_are_found_after_rotation(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = Log(str(path), 100)
    for number in range(9):
        log.write(b"line %d\n" % number)
    older = path.with_name("0.log.1")
    stamps: list[int] = []
    for name in (older, path):
        with name.open("rb") as file:
            times = log_times.find(path, file)
            assert times is not None
            times.refresh()
            found = [times.at(offset) for offset in range(0, name.stat().st_size, 7)]
            assert None not in found
            stamps += [stamp for stamp in found if stamp is not None]
            times.close()
    assert stamps == sorted(stamps)
    assert sum(name.stat().st_size for name in tmp_path.iterdir()) <= 2 * (100 + 16)


def test_a_pair_of_files_that_do_not_belong_together_has_no_times(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text("a\n")
    path.with_name("0.log.times").write_bytes(struct.pack("<qqqq", path.stat().st_ino + 1, 0, 0, 5))
    with path.open("rb") as file:
        assert log_times.find(path, file) is None


def test_a_record_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
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
