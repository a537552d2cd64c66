"""Layer plans and tars: the same files give the same bytes, and no path unpacks elsewhere."""

import io
import re
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.images.documents import layers
from serving.images.documents.layers import LayerEntry
from tests.objects.models.model_images import layer_tar

NAMES = st.from_regex(r"[a-zé漢0-9_-][a-zé漢0-9._-]{0,150}", fullmatch=True)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def is_valid(paths: list[str]) -> bool:
    try:
        layers.check_paths(paths)
    except errors.Permanent:
        return False
    return True


TREES = st.dictionaries(PATHS, st.binary(max_size=1500), min_size=1, max_size=8).filter(
    lambda tree: is_valid(list(tree))
)


@given(TREES)
def test_layer_unpacks_to_the_files_it_was_built_from(tree: dict[str, bytes]) -> None:
    (layer,) = layers.plan(LayerEntry(path, len(data)) for path, data in tree.items())
    with tarfile.open(fileobj=io.BytesIO(layer_tar(layer, tree)), mode="r:") as tar:
        members = tar.getmembers()
        contents = {m.name: tar.extractfile(m) for m in members if m.isreg()}
        unpacked = {name: file.read() for name, file in contents.items() if file is not None}
    assert unpacked == {f"models/{path}": data for path, data in tree.items()}
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert {m.mode for m in members if m.isdir()} == {0o755}
    assert {m.mode for m in members if m.isreg()} == {0o644}


@given(TREES, st.randoms())
def test_layer_plan_is_independent_of_listing_order(tree: dict[str, bytes], random) -> None:
    entries = [LayerEntry(path, len(data)) for path, data in tree.items()]
    shuffled = random.sample(entries, len(entries))
    assert layers.plan(entries) == layers.plan(shuffled)


@given(st.lists(st.integers(0, 3 * layers.BIG_FILE), min_size=1, max_size=150))
def test_every_file_is_in_exactly_one_layer_and_one_of_sixty_is_left_for_the_list(sizes: list[int]) -> None:
    entries = [LayerEntry(f"f{i:03}", size) for i, size in enumerate(sizes)]
    planned = layers.plan(entries)
    assert sorted((e for layer in planned for e in layer.files), key=lambda e: e.path) == entries
    assert len(planned) < layers.MAX_LAYERS


def test_a_big_file_has_its_own_layer_and_small_ones_share_the_first() -> None:
    big, small, second_small = LayerEntry("b", layers.BIG_FILE), LayerEntry("a", 10), LayerEntry("c", 20)
    assert layers.plan([big, small, second_small]) == (
        layers.LayerPlan((small, second_small)),
        layers.LayerPlan((big,)),
    )


def test_smallest_files_share_the_first_layer_when_too_many_are_big() -> None:
    entries = [LayerEntry(f"f{i:03}", layers.BIG_FILE + i) for i in range(100)]
    planned = layers.plan(entries)
    assert len(planned) == 59
    assert planned[0].files == tuple(entries[:42])


def test_file_of_nine_gigabytes_has_a_valid_header() -> None:
    ((_, _), (header, entry)) = layers.entries(layers.LayerPlan((LayerEntry("w", 9 * 2**30),)))
    with tarfile.open(fileobj=io.BytesIO(header + bytes(1024)), mode="r:") as tar:
        assert tar.next().size == 9 * 2**30  # type: ignore[union-attr]
    assert entry == LayerEntry("w", 9 * 2**30)


@pytest.mark.parametrize(
    ("paths", "rule"),
    [
        (["/etc/passwd"], "relative"),
        (["../x"], "`..`"),
        (["a/../../x"], "`..`"),
        (["a//b"], "empty"),
        (["./a"], "`.`"),
        ([""], "relative"),
        (["a", "a"], "duplicate"),
        (["Model", "model"], "duplicate"),
        (["é", "e\u0301"], "duplicate"),
        (["a", "a/b"], "not a directory"),
        (["Model", "model/x"], "is the file 'Model'"),
        (["x/.wh.y"], ".wh."),
        (["a\0b"], "control characters"),
        (["a\nb"], "control characters"),
        (["\x1b[31mred"], "control characters"),
        (["a/\x9b31m"], "control characters"),
        (["a\u2028b"], "line separators"),
        (["a\udc80"], "UTF-8"),
        (["/".join(["a" * 250] * 12)], "at most 3000 bytes"),
        (["/".join(["é" * 120] * 13)], "at most 3000 bytes"),
    ],
)
def test_a_path_that_would_unpack_differently_is_refused_by_its_rule(paths: list[str], rule: str) -> None:
    with pytest.raises(errors.Permanent, match=re.escape(rule)) as caught:
        layers.plan(LayerEntry(path, 1) for path in paths)
    assert caught.value.reason == "InvalidOutput"
