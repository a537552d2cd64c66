"""Fetching from storages: fsspec's memory storage, a driver that fails on request, and an HTTP server."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import aiohttp.client
import fsspec
import fsspec.asyn
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from serving import errors
from serving.controllers.models import storage_download
from tests.rig import leaks

FILES = {"model.joblib": b"weights" * 1000, "deep/a.json": b"{}", "deep/b.json": b"[]"}


class Flaky(MemoryFileSystem):  # type: ignore[misc]
    """Counts reads; `before` may fail them."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    reads: ClassVar[list[str]] = []
    before: Callable[[str], None] = staticmethod(lambda path: None)
    access_times: ClassVar[bool] = False
    """Whether listings have the time of access of each file, as those of SFTP do."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("flaky://", "memory://")))

    def get_file(self, rpath: str, lpath: str, **options: Any) -> None:
        type(self).before(rpath)
        self.reads.append(rpath.removeprefix("/bucket/digits/"))
        super().get_file(rpath, lpath, **options)

    def find(self, path: str, **options: Any) -> Any:
        listing = super().find(path, **options)
        accessed = datetime.fromtimestamp(len(self.reads), UTC)
        return (
            {n: {**info, "time": accessed} for n, info in listing.items()} if self.access_times else listing
        )


@pytest.fixture(autouse=True)
def bucket() -> Iterator[Flaky]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    files = Flaky()
    Flaky.store.clear()
    Flaky.reads.clear()
    Flaky.before = staticmethod(lambda path: None)
    Flaky.access_times = False
    for name, data in FILES.items():
        files.pipe(f"/bucket/digits/{name}", data)
    yield files
    Flaky.store.clear()


class Server(ThreadingHTTPServer):
    """An HTTP server of the files in a directory, with a page of links."""

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Files, directory=str(directory)))
        self.directory = directory
        self.before: Callable[[str], None] = lambda path: None
        self.halfway: Callable[[], None] = lambda: None
        """Called when half of a file is sent."""
        self.logins: list[str] = []
        self.etags: Iterator[int] | None = None
        self.uri = f"http://127.0.0.1:{self.server_address[1]}"
        self._written = 0

    def write(self, name: str, data: bytes) -> None:
        """Replace a file at once; each file has another time, as Last-Modified has whole seconds."""
        path, new = self.directory / name, self.directory.with_name("new")
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        self._written += 1
        os.utime(new, (1e9 + self._written,) * 2)
        new.replace(path)


class Files(SimpleHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.before(self.path)
        self.server.logins.append(self.headers.get("X-Login", ""))
        super().do_GET()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        data = source.read()
        outputfile.write(data[: len(data) // 2])
        self.server.halfway()
        outputfile.write(data[len(data) // 2 :])

    def end_headers(self) -> None:
        if self.server.etags is not None:
            self.send_header("ETag", f'"{next(self.server.etags)}"')
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Server]:
    with leaks.shared():
        fsspec.asyn.get_loop()  # fsspec's only one runs until this process ends
    with Server(tmp_path / "web") as server:
        for name, data in FILES.items():
            server.write(name, data)
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetch(into: Path, uri: str = "flaky://bucket/digits") -> dict[str, bytes]:
    target = storage_download.fetch(uri, into, lambda words: None)
    return {str(p.relative_to(target)): p.read_bytes() for p in sorted(target.rglob("*")) if p.is_file()}


def failing(path: str, error: Exception) -> Callable[[str], None]:
    def before(read_path: str) -> None:
        if read_path.endswith(path):
            raise error

    return staticmethod(before)


def test_all_files_are_fetched_and_progress_is_reported(tmp_path: Path) -> None:
    progress: list[str] = []
    target = storage_download.fetch("flaky://bucket/digits", tmp_path, progress.append)
    assert {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()} == set(FILES)
    assert progress[-1].startswith("fetched 0.0 MiB of 0.0 MiB")


def test_a_single_file_is_a_valid_source(tmp_path: Path) -> None:
    target = storage_download.fetch("flaky://bucket/digits/model.joblib", tmp_path, lambda words: None)
    assert [p.name for p in target.iterdir()] == ["model.joblib"]


def test_a_second_attempt_fetches_only_the_missing_files(tmp_path: Path) -> None:
    Flaky.before = failing("b.json", ConnectionResetError("cut"))
    with pytest.raises(errors.Temporary, match="cut") as raised:
        fetch(tmp_path)
    assert raised.value.reason == "SourceUnavailable"
    fetched = set(Flaky.reads)  # files fetched beside the one that failed
    Flaky.before = staticmethod(lambda path: None)
    assert fetch(tmp_path) == FILES
    assert all(Flaky.reads.count(name) == 1 for name in fetched), "fetched again"


def test_files_that_changed_between_two_attempts_are_fetched_again(tmp_path: Path, bucket: Flaky) -> None:
    assert fetch(tmp_path) == FILES
    bucket.pipe("/bucket/digits/model.joblib", b"others!" * 1000)
    bucket.rm("/bucket/digits/deep/b.json")
    assert fetch(tmp_path) == {"deep/a.json": b"{}", "model.joblib": b"others!" * 1000}
    assert Flaky.reads.count("deep/a.json") == 1


def test_a_file_is_fetched_in_the_place_of_an_earlier_directory(tmp_path: Path, bucket: Flaky) -> None:
    assert fetch(tmp_path) == FILES
    bucket.rm("/bucket/digits/deep", recursive=True)
    bucket.pipe("/bucket/digits/deep", b"flat")
    assert fetch(tmp_path) == {"deep": b"flat", "model.joblib": FILES["model.joblib"]}


def test_access_times_that_the_fetch_moves_are_no_change(tmp_path: Path) -> None:
    Flaky.access_times = True
    assert fetch(tmp_path) == FILES
    assert fetch(tmp_path) == FILES
    assert len(Flaky.reads) == len(FILES)


@pytest.mark.parametrize("path", ["/model.joblib", "/"])
def test_a_file_of_an_http_server_that_was_replaced_between_two_attempts_is_fetched_again(
    tmp_path: Path, web: Server, path: str
) -> None:
    fetch(tmp_path / "in", web.uri + path)
    web.write("model.joblib", b"others!" * 1000)
    assert fetch(tmp_path / "in", web.uri + path)["model.joblib"] == b"others!" * 1000


def test_a_file_of_an_http_server_that_is_replaced_during_the_fetch_is_a_temporary_error(
    tmp_path: Path, web: Server
) -> None:
    def replace(path: str) -> None:
        if path.endswith("a.json"):
            web.write("model.joblib", b"others!" * 1000)

    web.before = replace
    with pytest.raises(errors.Temporary) as raised:
        fetch(tmp_path / "in", f"{web.uri}/")
    assert raised.value.reason == "OutputStillChanging"


def test_a_file_is_unchanged_when_each_server_of_a_mirror_has_its_own_etag(
    tmp_path: Path, web: Server
) -> None:
    web.etags = itertools.count()
    assert fetch(tmp_path / "in", f"{web.uri}/")["model.joblib"]


@pytest.mark.parametrize("path", ["/model.joblib", "/"])
def test_a_file_of_an_http_server_is_fetched_when_it_takes_longer_than_the_timeout_of_the_client(
    tmp_path: Path, web: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    web.halfway = partial(time.sleep, 0.5)
    assert fetch(tmp_path / "in", web.uri + path)["model.joblib"] == FILES["model.joblib"]


def test_a_login_in_the_configuration_of_fsspec_is_sent_to_an_http_server(
    tmp_path: Path, web: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "http", {"client_kwargs": {"headers": {"X-Login": "reader"}}})
    assert fetch(tmp_path / "in", f"{web.uri}/model.joblib")
    assert "reader" in web.logins


def test_progress_has_the_size_that_an_http_server_names(tmp_path: Path, web: Server) -> None:
    web.write("model.joblib", bytes(2 * 1024**2))
    progress: list[str] = []
    storage_download.fetch(f"{web.uri}/", tmp_path / "in", progress.append)
    assert progress[-1] == "fetched 2.0 MiB of 2.0 MiB"


def test_a_link_of_a_page_to_a_file_that_does_not_answer_is_a_temporary_error(
    tmp_path: Path, web: Server
) -> None:
    (web.directory / "broken.json").symlink_to("nothing")
    with pytest.raises(errors.Temporary, match=r"broken\.json.*404"):
        fetch(tmp_path / "in", f"{web.uri}/")


def test_files_that_change_during_the_fetch_are_a_temporary_error(tmp_path: Path, bucket: Flaky) -> None:
    def touch(path: str) -> None:
        if path.endswith("a.json"):
            bucket.pipe("/bucket/digits/model.joblib", b"others!" * 1000)

    Flaky.before = staticmethod(touch)
    with pytest.raises(errors.Temporary) as raised:
        fetch(tmp_path)
    assert raised.value.reason == "OutputStillChanging"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError("no access"), "SourceForbidden"),
        (FileNotFoundError("went away"), "OutputStillChanging"),
        (RuntimeError("a client's own"), "SourceUnavailable"),
        (OSError(28, "No space left on device"), "DiskFull"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_error_of_a_driver_is_temporary_with_a_reason(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    Flaky.before = failing("model.joblib", error)
    with pytest.raises(errors.Temporary) as raised:
        fetch(tmp_path)
    assert raised.value.reason == reason


@pytest.mark.parametrize("name", ["../out", "deep/../../out", ".wh.x"])
def test_names_outside_the_target_are_refused(tmp_path: Path, bucket: Flaky, name: str) -> None:
    path = f"/bucket/digits/{name}"
    Flaky.store[path] = Flaky.store["/bucket/digits/model.joblib"]
    with pytest.raises(errors.Permanent) as raised:
        fetch(tmp_path / "in")
    assert raised.value.reason == "InvalidOutput"
    assert not (tmp_path / "out").exists()


class Wrapped(DirFileSystem):  # type: ignore[misc]
    """The machine's files below another file system."""

    protocol = "wrapped"

    def __init__(self) -> None:
        super().__init__(path="/", fs=LocalFileSystem())

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("wrapped://")


class AsyncLocal(MemoryFileSystem):  # type: ignore[misc]
    """Of morefs: it reads the machine's files, and is no LocalFileSystem."""

    protocol = "asynclocal"


@pytest.mark.parametrize("scheme", ["local", "file", "wrapped", "asynclocal"])
def test_files_of_this_machine_are_refused_as_their_directory_is_not_checked(
    scheme: str, tmp_path: Path
) -> None:
    fsspec.register_implementation("wrapped", Wrapped, clobber=True)
    fsspec.register_implementation("asynclocal", AsyncLocal, clobber=True)
    source = tmp_path / "data"
    source.mkdir()
    (source / "ca.key").write_text("secret")
    AsyncLocal().pipe(f"{source}/ca.key", b"secret")
    with pytest.raises(errors.Permanent, match="files of this machine") as raised:
        fetch(tmp_path / "in", f"{scheme}://{source}")
    assert raised.value.reason == "InvalidOutput"
    assert not (tmp_path / "in").exists()
