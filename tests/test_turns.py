"""The turns of the longest tests: every file has one, and a commit always chooses the same."""

from tests.rig import turns


def test_every_file_runs_in_one_turn_of_all() -> None:
    files = {
        path for pattern in turns.FILES for path in turns.ROOT.glob(pattern) if path.name.startswith("test_")
    }
    runs = [files - set(turns.others(part)) for part in range(turns.PARTS)]
    assert set.union(*runs) == files
    assert sum(map(len, runs)) == len(files)
    assert all(runs)


def test_every_pattern_names_files() -> None:
    assert all(any(turns.ROOT.glob(pattern)) for pattern in turns.FILES)


def test_commit_always_has_the_same_turn() -> None:
    chosen = turns.turn(turns.BY_COMMIT)
    assert chosen == turns.turn(turns.BY_COMMIT)
    assert chosen in range(turns.PARTS)


def test_all_leaves_nothing_out() -> None:
    assert turns.others(turns.turn(turns.ALL)) == ()
