"""Envoy's counts of tokens are parsed, and rendered for the gateway's metrics page."""

from prometheus_client.parser import text_string_to_metric_families

from serving.router.envoy import token_accounting
from serving.router.envoy.token_accounting import BOUNDS_US, EPOCH, Latencies, TokenCounts
from serving.router.metrics import token_page
from serving.router.metrics.labels import Labels

ID, CLUSTER = "a6ebc3e6d5a5", "default/chat-a/8080"
LABELS = Labels("default", "chat", "a", "chat-a")
BACKEND = f'{{backend="{ID}"'


def histogram(name: str, count: int) -> str:
    full = f"envoy_slipway_tokens_{name}"
    bounds = [*(f"{bound:g}" for bound in BOUNDS_US), "+Inf"]
    buckets = "".join(f'{full}_bucket{BACKEND},le="{bound}"}} {count}\n' for bound in bounds)
    return f"{buckets}{full}_sum{BACKEND}}} 1500000.25\n{full}_count{BACKEND}}} {count}\n"


PAGE = f"""# TYPE envoy_slipway_tokens_prompt_tokens counter
envoy_slipway_tokens_prompt_tokens{BACKEND}}} 70
envoy_slipway_tokens_generated_tokens{BACKEND}}} 200
envoy_slipway_tokens_prompt_admitted{BACKEND}}} 100
envoy_slipway_tokens_prompt_settled{BACKEND}}} 70
envoy_slipway_tokens_requests_admitted{BACKEND}}} 5
envoy_slipway_tokens_requests_settled{BACKEND}}} 3
envoy_slipway_tokens_started_admitted{BACKEND}}} 2200
envoy_slipway_tokens_started_settled{BACKEND}}} 1200
envoy_slipway_tokens_unread_settled{BACKEND}}} 4
{histogram("first_token_us", 4)}{histogram("inter_token_us", 9)}"""


def test_page_of_envoy_is_parsed_by_backend() -> None:
    counts = token_accounting.parse(PAGE)
    assert counts.keys() == {ID}
    own = counts[ID]
    assert (own.prompt_tokens, own.generated_tokens) == (74, 200)
    assert (own.waiting("prompt"), own.waiting("requests"), own.waiting("output")) == (30, 2, 0)
    assert own.age(EPOCH + 60) == 60 - 50
    assert own.first_token == Latencies((4,) * (len(BOUNDS_US) + 1), 1.50000025)
    assert own.inter_token.at_most[-1] == 9


def test_counts_that_settle_between_two_readings_are_never_negative() -> None:
    counts = TokenCounts({"prompt_admitted": 5, "prompt_settled": 9})
    assert counts.waiting("prompt") == 0
    assert counts.age(EPOCH + 60) == 0


def test_rendered_page_is_prometheus_text_with_the_labels_of_the_revision() -> None:
    text = token_page.families({CLUSTER: token_accounting.parse(PAGE)[ID]}, {CLUSTER: LABELS}, EPOCH + 60)
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
