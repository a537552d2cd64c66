"""What `slipway tune -f` says when it has begun."""

import pytest

from serving.cli.objects.manifests import Document
from serving.cli.tune import start
from serving.resources import kinds


@pytest.mark.parametrize(
    ("size", "budget", "words"),
    [
        (96, 20, "digits: 96 specs, at most 20 trials"),
        (1, 1, "digits: 1 spec, at most 1 trial"),
        (None, 20, "digits: at most 20 trials"),
    ],
)
def test_counts_are_singular_for_one_only_and_what_is_not_known_is_left_out(
    size: int | None, budget: int, words: str
) -> None:
    body = {"spec": {"maxNumTrials": budget}}
    document = Document("a.yaml", kinds.PROFILING_EXPERIMENT, "default", "digits", body)
    assert start.announcement(document, size) == words
