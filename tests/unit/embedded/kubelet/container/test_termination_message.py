import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.container import termination_message
from serving.embedded.kubelet.records import RunDirectory, write_json

FALLBACK = {"name": "c", "terminationMessagePolicy": "FallbackToLogsOnError"}
IN_TMP = {**FALLBACK, "terminationMessagePath": "/tmp/a/why"}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "c" / "0")
    directory.begin()
    return directory


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_text("began\nLoadFailed: no\n")
    return path


def ended(run: RunDirectory, code: int = 1, *, oom: bool = False, signal: int = 0, error: str = "") -> None:
    write_json(run.path / "exit.json", {"code": code, "signal": signal, "oom": oom, "error": error})


def message(run: RunDirectory, container: dict, log: Path) -> str:
    state = termination_message.read_run(run, container, log)
    assert state.exit is not None
    return state.exit.termination_message


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"why\n", "why\n"),
        (b"", ""),
        ("Grüße\t€\n".encode(), "Grüße\t€\n"),
        (b"a\0b\x1b[31m\x7f\r\n", "a\\x00b\\x1b[31m\\x7f\\r\n"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202egnp.exe\u2028".encode(), "\\u202egnp.exe\\u2028"),
        ("\u0085\u009b1m".encode(), "\\x85\\x9b1m"),
    ],
)
def test_message_has_escapes_when_bytes_are_no_text(data: bytes, text: str) -> None:
    assert termination_message.from_file(data) == text
    assert termination_message.from_log(data) == text


def test_message_is_the_end_when_the_output_is_longer() -> None:
    assert termination_message.from_file(b"a" * 5000 + b"end") == "a" * 4093 + "end"
    assert termination_message.from_log(b"a" * 5000 + b"end") == "a" * 2045 + "end"
    lines = [f"{number}\n" for number in range(200)]
    assert termination_message.from_log("".join(lines).encode()) == "".join(lines[-80:])


def test_message_begins_with_a_character_when_the_bound_cuts_one() -> None:
    assert termination_message.from_log(("€" * 1000).encode()) == "€" * (2048 // 3)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_message_is_bounded_text_without_control_characters_for_any_bytes(data: bytes, times: int) -> None:
    for text, limit in (
        (termination_message.from_file(data * times), 4096),
        (termination_message.from_log(data * times), 2048),
    ):
        assert len(text.encode()) <= limit
        assert not {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")} - set("\n\t")
    assert len(termination_message.from_log(data * times).splitlines()) <= 80


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=600))
def test_message_is_the_output_itself_when_it_is_short_text(text: str) -> None:
    assert termination_message.from_log(text.encode()) == text or len(text.encode()) > 2048


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ({}, "began\nLoadFailed: no\n"),
        ({"code": 137, "signal": 9, "oom": True}, "began\nLoadFailed: no\n"),
        ({"code": 0}, ""),
        ({"code": 128, "error": "no such program"}, ""),
    ],
)
def test_end_of_the_log_is_the_message_when_the_program_failed(
    run: RunDirectory, log: Path, ending: dict, text: str
) -> None:
    ended(run, **ending)
    assert message(run, FALLBACK, log) == text
    assert message(run, {"name": "c"}, log) == ""


def test_run_has_no_exit_and_no_message_while_it_runs(run: RunDirectory, log: Path) -> None:
    assert termination_message.read_run(run, FALLBACK, log).exit is None


def test_message_of_a_log_begins_in_the_rotated_file_when_the_log_is_short(
    run: RunDirectory, log: Path
) -> None:
    log.with_name("0.log.1").write_text("older\n")
    ended(run)
    assert message(run, FALLBACK, log) == "older\nbegan\nLoadFailed: no\n"


def test_file_of_the_program_is_the_message_also_when_its_tmp_has_been_removed(
    run: RunDirectory, log: Path
) -> None:
    (run.tmp / "a").mkdir()
    (run.tmp / "a" / "why").write_text("of the file")
    ended(run, 0)
    assert message(run, IN_TMP, log) == "of the file"
    (run.tmp / "a" / "why").unlink()
    assert message(run, IN_TMP, log) == "of the file"


OTHERS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, secret: path.symlink_to(secret),
    "fifo": lambda path, _: os.mkfifo(path),
    "directory": lambda path, _: path.mkdir(),
    "empty": lambda path, _: path.touch(),
    "absent": lambda *_: None,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_log_is_the_message_when_the_file_is_no_regular_one(
    run: RunDirectory, log: Path, tmp_path: Path, kind: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (run.tmp / "a").mkdir()
    OTHERS[kind](run.tmp / "a" / "why", secret)
    ended(run)
    assert message(run, IN_TMP, log) == "began\nLoadFailed: no\n"


def test_no_link_leads_to_another_file_when_it_is_a_directory_of_the_path(
    run: RunDirectory, log: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "why").write_text("secret")
    (run.tmp / "a").symlink_to(tmp_path / "outside")
    ended(run)
    assert message(run, IN_TMP, log) == "began\nLoadFailed: no\n"


@pytest.mark.parametrize("kind", [kind for kind in OTHERS if kind != "empty"])
def test_message_is_empty_when_the_log_is_no_regular_file(
    run: RunDirectory, log: Path, tmp_path: Path, kind: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    log.unlink()
    OTHERS[kind](log, secret)
    ended(run)
    assert message(run, FALLBACK, log) == ""
