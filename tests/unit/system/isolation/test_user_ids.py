from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.system.isolation import user_ids
from serving.system.isolation.user_ids import BLOCK, RANGE, SMALL_RANGE, UserIds

WHOLE = "         0          0 4294967295\n"


def test_ids_are_those_that_no_system_assigns_when_all_are_mapped() -> None:
    assert user_ids.mapped(WHOLE) == RANGE


def test_ids_are_small_when_a_container_maps_65536() -> None:
    assert user_ids.mapped("0 100000 65536\n") == SMALL_RANGE


def test_map_without_usable_ids_is_refused() -> None:
    with pytest.raises(errors.Permanent, match="maps no ids"):
        user_ids.mapped("0 1000 1\n")


@given(st.integers(0, 2**31), st.integers(1, 2**32))
def test_ids_are_mapped_and_no_account_has_them(inside: int, count: int) -> None:
    try:
        ids = user_ids.mapped(f"{inside} 0 {count}\n")
    except errors.Permanent:
        return
    assert len(ids) >= BLOCK
    assert inside <= ids[0]
    assert ids[-1] < inside + count
    assert ids[0] > 30_000


def test_no_id_is_leased_twice_by_two_holders_and_after_a_restart(tmp_path: Path) -> None:
    holders = [UserIds(tmp_path / "ids"), UserIds(tmp_path / "ids")]
    ids = [holder.new() for holder in holders for _ in range(3)]
    ids += [UserIds(tmp_path / "ids").new() for _ in range(3)]
    assert len(set(ids)) == len(ids)
    assert all(uid in holders[0] for uid in ids)


def test_id_that_is_taken_is_left_out(tmp_path: Path) -> None:
    ids = UserIds(tmp_path / "ids")
    first = ids.new()
    assert UserIds(tmp_path / "other").new(range(first, first + 10)) not in range(first, first + 10)
    assert ids.new({first + 1, first + 2}) == first + 3


def test_ids_begin_again_at_the_end_of_the_range(tmp_path: Path) -> None:
    file = tmp_path / "ids"
    ids = UserIds(file)
    whole = user_ids.mapped(Path("/proc/self/uid_map").read_text())
    file.write_text(str(whole.stop - BLOCK))
    assert ids.new() == whole.stop - BLOCK
    file.write_text(str(whole.stop))
    assert UserIds(file).new() == whole.start


def test_every_id_of_the_range_is_leased_when_it_has_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_ids, "mapped", lambda _: range(40_000, 40_000 + BLOCK))
    monkeypatch.setattr(user_ids, "in_use", set)
    ids = UserIds(tmp_path / "ids")
    leased = {ids.new() for _ in range(BLOCK)}
    assert leased == set(range(40_000, 40_000 + BLOCK))
    with pytest.raises(errors.Temporary, match="all user ids of"):
        ids.new(leased)


def test_ids_that_a_process_had_when_their_block_was_taken_are_never_leased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = {40_001, 40_003}
    monkeypatch.setattr(user_ids, "mapped", lambda _: range(40_000, 40_000 + BLOCK))
    monkeypatch.setattr(user_ids, "in_use", lambda: running)
    file = tmp_path / "ids"
    file.write_text("40000")
    ids = UserIds(file)
    assert [ids.new() for _ in range(3)] == [40_000, 40_002, 40_004]
