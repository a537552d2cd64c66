"""Pages as gateways and activators write them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.signals.exposition import Counts, Parser, ScaleTargetName
from serving.router.activator.metrics import ActivatorMetrics
from serving.router.metrics.labels import Labels

D = Labels("default", "digits", "stable", "digits-stable-1")
PAGE = f"""# HELP slipway_requests_received_total Requests that came, answered or not.
# TYPE slipway_requests_received_total counter
slipway_requests_received_total{{{D.text}}} 120
slipway_requests_total{{{D.text},code_class="2xx"}} 100
slipway_requests_total{{{D.text},code_class="5xx"}} 10
slipway_requests_in_flight{{{D.text}}} 10
slipway_request_duration_seconds_bucket{{{D.text},le="+Inf"}} 110
slipway_request_duration_seconds_sum{{{D.text}}} 5.5
slipway_request_duration_seconds_count{{{D.text}}} 110
slipway_gateway_reading_timestamp_seconds 1790000000.125
slipway_envoy_start_time_seconds 1780000000.25
slipway_gateway_info{{gateway="local"}} 1
process_cpu_seconds_total 3
"""


def test_all_series_of_a_gateways_page_are_read() -> None:
    page = Parser().page(PAGE)
    assert (page.gateway, page.activator) == ("local", "")
    assert (page.read_at, page.started) == (1790000000.125, 1780000000.25)
    assert page.counts == {ScaleTargetName("default", "digits-stable-1"): Counts(120, 110, 10, 5.5, 110, 10)}


def test_histograms_are_read_only_for_targets_that_need_them() -> None:
    target = ScaleTargetName("default", "digits-stable-1")
    without_histogram = Labels("default", "i", "p", "other").text
    page = PAGE + f'slipway_request_duration_seconds_bucket{{{without_histogram},le="0.5"}} 7\n'
    assert Parser().page(page).buckets == {}
    assert Parser().page(page, frozenset({target})).buckets == {target: {float("inf"): 110.0}}


def test_same_page_has_the_same_values_when_read_again() -> None:
    parser = Parser()
    assert parser.page(PAGE) == parser.page(PAGE)


def test_page_with_the_same_counts_has_its_own_time_and_other_values() -> None:
    parser, target = Parser(), ScaleTargetName("default", "digits-stable-1")
    first = parser.page(PAGE, {target})
    later = parser.page(
        PAGE.replace("1790000000.125", "1790000005").replace(
            "envoy_start_time_seconds 178", "envoy_start_time_seconds 179"
        ),
        {target},
    )
    assert (later.read_at, later.started) == (1790000005.0, 1790000000.25)
    assert (later.counts, later.buckets) == (first.counts, first.buckets)
    assert later.counts is first.counts
    assert parser.page(PAGE, frozenset()).buckets == {}


def test_page_with_other_counts_is_parsed_again() -> None:
    parser, target = Parser(), ScaleTargetName("default", "digits-stable-1")
    parser.page(PAGE)
    changed = PAGE.replace("} 120", "} 121")
    assert parser.page(changed).counts[target].received == 121
    assert (
        parser.page(changed + f"slipway_requests_received_total{{{D.text}}} 9\n").counts[target].received
        == 130
    )


def test_activators_page_has_the_held_requests() -> None:
    page = Parser().page(ActivatorMetrics("local", lambda: [(D, 7)]).page())
    assert page.activator
    assert page.held == {ScaleTargetName("default", "digits-stable-1"): 7}


def test_page_with_an_invalid_number_is_refused() -> None:
    with pytest.raises(ValueError, match="many"):
        Parser().page(f"slipway_requests_received_total{{{D.text}}} many\n")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_names_are_read_back_as_they_were_written(name: str) -> None:
    labels = Labels("default", "i", "p", name)
    page = Parser().page(f"slipway_requests_received_total{{{labels.text}}} 1\n")
    assert list(page.counts) == [ScaleTargetName("default", name)]


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        Parser().page(text)
