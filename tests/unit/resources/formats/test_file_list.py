"""The bytes of the list of a model's files, which must not depend on the order of the files."""

import json

from hypothesis import given
from hypothesis import strategies as st

from serving.resources.formats import file_list

FILES = st.lists(
    st.tuples(st.text(), st.from_regex(r"sha256:[0-9a-f]{8}", fullmatch=True), st.integers(0, 2**50)),
    unique_by=lambda file: file[0],
)


def test_list_has_these_bytes() -> None:
    """A release that wrote others would refuse the images of this one."""
    files = [("w\u00e9", "sha256:2", 20), ("a/b", "sha256:1", 10)]
    assert file_list.encode(files).decode() == (
        '{"files":[{"digest":"sha256:1","path":"a/b","size":10},'
        '{"digest":"sha256:2","path":"w\u00e9","size":20}]}'
    )


@given(FILES.map(lambda files: [(path.encode("utf-8", "replace").decode(), *rest) for path, *rest in files]))
def test_list_is_read_back_and_has_one_digest_in_any_order(files: list[tuple[str, str, int]]) -> None:
    document = file_list.encode(files)
    assert json.loads(document)["files"] == sorted(json.loads(document)["files"], key=lambda f: f["path"])
    assert file_list.digest(reversed(files)) == file_list.digest_of(document)
    assert file_list.parse(document) == {path: digest for path, digest, _ in files}
