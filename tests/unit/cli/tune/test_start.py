"""The announcement of `slipway tune -f`."""

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
def test_the_announcement_has_counts_and_leaves_out_an_unknown_size(
    size: int | None, budget: int, words: str
) -> None:
    body = {"spec": {"maxNumTrials": budget}}
    document = Document("a.yaml", kinds.PROFILING_EXPERIMENT, "default", "digits", body)
    assert start.announcement(document, size) == words
