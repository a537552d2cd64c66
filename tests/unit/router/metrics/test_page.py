"""Envoy's statistics are parsed, and the gateway's metrics page is rendered."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.router.envoy.counts import statistics
from serving.router.envoy.counts.count_table import BOUNDS_MS, Answers
from serving.router.metrics.labels import Labels, labels_of
from serving.router.metrics.page import EnvoyCounts, RequestCounts
from tests.rig.servers.gateway import route

A, B = "default/digits-a/8080", "team/other-b/9000"
LABELS = Labels("default", "digits", "a", "digits-a")


PAGE = f"""# TYPE envoy_cluster_upstream_rq_total counter
envoy_cluster_upstream_rq_total{{envoy_cluster_name="{A}"}} 12
envoy_cluster_upstream_rq_total{{envoy_cluster_name="{B}"}} 1
# TYPE envoy_cluster_upstream_cx_none_healthy counter
envoy_cluster_upstream_cx_none_healthy{{envoy_cluster_name="{A}"}} 4
# TYPE envoy_cluster_upstream_rq_active gauge
envoy_cluster_upstream_rq_active{{envoy_cluster_name="{A}"}} 1
"""
ANSWERS = {A: Answers((0, 9, 0, 0, 2), (0, 0, 3, 8, *[0] * (len(BOUNDS_MS) - 3)), 420_500)}


def samples(page: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(v for k, v in sample.labels.items() if k not in Labels._fields)): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_envoy_statistics_are_parsed_by_cluster() -> None:
    assert statistics.parse(PAGE) == {
        A: {"total": 12, "cx_none_healthy": 4, "active": 1},
        B: {"total": 1},
    }


def test_empty_page_has_no_statistics() -> None:
    assert statistics.parse("") == {}


@pytest.mark.parametrize(
    "page",
    [
        "No such path\n",
        'envoy_cluster_upstream_rq_total{envoy_cluster_name="a/b/1"} many\n',
        'envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="public"} 3\n',
    ],
)
def test_text_that_is_no_statistics_page_is_refused(page: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 some messages are Python's
        statistics.parse(page)


@pytest.mark.parametrize(
    ("counts", "received"),
    [
        ({"total": 5}, 5),
        ({"total": 5, "active": 2, "pending_active": 1}, 6),
        ({"total": 5, "pending_failure_eject": 2, "retry": 2}, 5),
        ({"pending_failure_eject": 3, "retry": 2}, 1),
        ({"cx_none_healthy": 1, "cancelled": 1, "pending_overflow": 1}, 3),
        ({"total": 3, "active_overflow": 5}, 8),
    ],
)
def test_retried_request_is_counted_once(counts: dict[str, int], received: int) -> None:
    assert statistics.received(counts) == received


def test_page_has_received_and_answered_requests_and_durations() -> None:
    envoy = EnvoyCounts(started=50.0)
    envoy.update(statistics.parse(PAGE), ANSWERS, 100.0)
    values = samples(envoy.page("local", {A: LABELS}))
    assert values[("slipway_requests_received_total",)] == 16
    assert values[("slipway_requests_in_flight",)] == 1
    assert values[("slipway_requests_total", "2xx")] == 9
    assert values[("slipway_requests_total", "5xx")] == 2
    assert ("slipway_requests_total", "4xx") not in values
    assert values[("slipway_request_duration_seconds_bucket", "0.005")] == 3
    assert values[("slipway_request_duration_seconds_bucket", "0.01")] == 11
    assert values[("slipway_request_duration_seconds_count",)] == 11
    assert values[("slipway_request_duration_seconds_sum",)] == 0.4205
    assert values[("slipway_gateway_reading_timestamp_seconds",)] == 100
    assert values[("slipway_envoy_start_time_seconds",)] == 50


def test_page_of_totals_is_the_page_without_buckets() -> None:
    envoy = EnvoyCounts(started=50.0)
    envoy.update(statistics.parse(PAGE), ANSWERS, 100.0)
    whole = samples(envoy.page("local", {A: LABELS}))
    page = envoy.page("local", {A: LABELS}, buckets=False)
    assert samples(page) == {name: value for name, value in whole.items() if not name[0].endswith("_bucket")}
    assert "# TYPE slipway_request_duration_seconds summary\n" in page


def test_cluster_unknown_to_the_gateway_is_not_on_the_page() -> None:
    envoy = EnvoyCounts(0.0)
    envoy.update(statistics.parse(PAGE), ANSWERS, 100.0)
    assert "other" not in envoy.page("local", {A: LABELS})
    assert "digits" not in envoy.page("local", {})


def test_count_does_not_decrease_between_a_retry_and_its_attempt() -> None:
    envoy = EnvoyCounts(0.0)
    for counts, total in (
        ({"total": 5}, 5),
        ({"total": 5, "retry": 1}, 5),
        ({"total": 6, "retry": 1}, 5),
        ({"total": 7, "retry": 1}, 6),
    ):
        envoy.update({A: counts}, {}, 1.0)
        assert envoy.counts[A] == RequestCounts(total, 0)


def test_recreated_cluster_counts_from_zero() -> None:
    envoy = EnvoyCounts(0.0)
    envoy.update({A: {"total": 5}}, {}, 1.0)
    envoy.update({A: {"total": 2}}, {}, 2.0)
    assert envoy.counts[A].received == 2
    envoy.update({}, {}, 3.0)
    envoy.update({A: {"total": 3}}, {}, 4.0)
    assert envoy.counts[A].received == 3


@pytest.mark.parametrize("is_read_while_removed", [True, False])
def test_answers_of_a_recreated_cluster_count_from_zero(*, is_read_while_removed: bool) -> None:
    seven = Answers((0, 7, 0, 0, 0), (7, *[0] * len(BOUNDS_MS)), 7_000)
    nine = Answers((0, 8, 0, 0, 1), (9, *[0] * len(BOUNDS_MS)), 9_000)
    envoy = EnvoyCounts(0.0)
    envoy.update({A: {"total": 7}}, {A: seven}, 1.0)
    if is_read_while_removed:
        envoy.update({}, {A: seven}, 2.0)
    envoy.update({A: {"total": 2}}, {A: nine}, 3.0)
    values = samples(envoy.page("local", {A: LABELS}))
    assert values[("slipway_requests_total", "2xx")] == values[("slipway_requests_total", "5xx")] == 1
    assert values[("slipway_request_duration_seconds_count",)] == 2
    assert values[("slipway_request_duration_seconds_sum",)] == pytest.approx(0.002)


def test_answers_are_complete_for_a_gateway_that_starts_later_than_envoy() -> None:
    envoy = EnvoyCounts(0.0)
    envoy.update({A: {"total": 11}}, ANSWERS, 1.0)
    assert samples(envoy.page("local", {A: LABELS}))[("slipway_request_duration_seconds_count",)] == 11


def test_only_changed_lines_of_the_page_are_rendered_again() -> None:
    envoy = EnvoyCounts(0.0)
    envoy.update({A: {"total": 5}}, {}, 1.0)
    first_page = envoy.page("local", {A: LABELS})
    envoy.update({A: {"total": 5}}, {}, 2.0)
    assert envoy.page("local", {A: LABELS}) == first_page.replace("seconds 1.000", "seconds 2.000")
    envoy.update({A: {"total": 6}}, {}, 2.0)
    assert "} 6\n" in envoy.page("local", {A: LABELS})
    assert 'predictor="other"' in envoy.page("local", {A: LABELS._replace(predictor="other")})


def test_labels_are_read_from_the_backends_of_a_route() -> None:
    assert labels_of(route("digits", [("a", 5000), ("b", 5000)], unweighted=["c"], namespace="team")) == {
        f"team/digits-{arm}/8080": Labels("team", "digits", arm, f"digits-{arm}") for arm in "abc"
    }


def test_label_values_are_escaped_for_prometheus() -> None:
    odd = Labels("a", 'b"c', "d\\e", "f\ng")
    page = f"# TYPE x gauge\nx{{{odd.text}}} 1\n"
    [family] = text_string_to_metric_families(page)
    assert family.samples[0].labels == odd._asdict()
