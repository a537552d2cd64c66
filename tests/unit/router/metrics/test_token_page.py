"""Counts of tokens are rendered for the gateway's metrics page."""

from prometheus_client.parser import text_string_to_metric_families

from serving.router.envoy.counts.token_counts import BOUNDS_US, EPOCH, Latencies, TokenCounts
from serving.router.metrics import token_page
from serving.router.metrics.labels import Labels

CLUSTER = "default/chat-a/8080"
LABELS = Labels("default", "chat", "a", "chat-a")


COUNTS = TokenCounts(
    {
        "prompt_tokens": 70,
        "generated_tokens": 200,
        "prompt_admitted": 100,
        "prompt_settled": 70,
        "requests_admitted": 5,
        "requests_settled": 3,
        "started_admitted": 2200,
        "started_settled": 1200,
        "prompt_unreported": 4,
    },
    Latencies((0, 0, 0, *[4] * (len(BOUNDS_US) - 2)), 1.5),
    Latencies((9,) * (len(BOUNDS_US) + 1), 1.5),
)


def test_counts_are_of_what_requests_have_admitted_and_not_settled() -> None:
    assert (COUNTS.prompt_tokens, COUNTS.generated_tokens) == (74, 200)
    assert (COUNTS.waiting("prompt"), COUNTS.waiting("requests"), COUNTS.waiting("output")) == (30, 2, 0)
    assert COUNTS.age(EPOCH + 60) == 60 - 50


def test_counts_that_settle_between_two_readings_are_never_negative() -> None:
    counts = TokenCounts({"prompt_admitted": 5, "prompt_settled": 9})
    assert counts.waiting("prompt") == 0
    assert counts.age(EPOCH + 60) == 0


def test_rendered_page_is_prometheus_text_with_the_labels_of_the_revision() -> None:
    text = token_page.families({CLUSTER: COUNTS}, {CLUSTER: LABELS}, EPOCH + 60)
    samples = {
        (sample.name, *(v for k, v in sample.labels.items() if k not in Labels._fields)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["slipway_prompt_tokens_total",] == 74
    assert samples["slipway_generated_tokens_total",] == 200
    assert samples["slipway_tokens_waiting", "prompt"] == 30
    assert samples["slipway_token_queue_requests",] == 2
    assert samples["slipway_token_queue_age_seconds",] == 10
    assert samples["slipway_time_to_first_token_seconds_bucket", "0.01"] == 4
    assert samples["slipway_inter_token_latency_seconds_count",] == 9


def test_page_without_language_models_has_no_families() -> None:
    assert token_page.families({}, {CLUSTER: LABELS}, 0.0) == ""
    assert token_page.families({CLUSTER: TokenCounts()}, {}, 0.0) == ""
