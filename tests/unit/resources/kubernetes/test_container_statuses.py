from serving.resources.kubernetes import container_statuses


def test_the_statuses_of_init_containers_come_first_when_a_pod_has_some() -> None:
    copied, main = {"name": "copy-model"}, {"name": "predictor"}
    assert container_statuses.of({"initContainerStatuses": [copied], "containerStatuses": [main]}) == [
        copied,
        main,
    ]
    assert container_statuses.of({"initContainerStatuses": None, "containerStatuses": [main]}) == [main]
    assert container_statuses.of({}) == []
