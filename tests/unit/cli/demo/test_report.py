from serving.cli.demo.report import RequestResult, arms, failures


def test_a_split_is_accepted_only_within_its_interval() -> None:
    rows = [RequestResult(float(i), "v1" if i % 10 else "v2", 1.0, correct=True) for i in range(3000)]
    versions = {"stable": "v1", "canary": "v2"}
    assert all(arm.as_expected for arm in arms(rows, versions, {"stable": 90, "canary": 10}))
    assert not any(arm.as_expected for arm in arms(rows, versions, {"stable": 80, "canary": 20}))


def test_failed_requests_count_for_no_arm() -> None:
    rows = [RequestResult(0, None, 5.0, "refused"), RequestResult(1, "v1", 1.0, correct=False)]
    assert failures(rows) == ["refused"]
    (arm,) = arms(rows, {"stable": "v1"}, {"stable": 1})
    assert (arm.requests, arm.share, arm.accuracy) == (1, 1.0, 0.0)
