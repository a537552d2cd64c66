import asyncio

import pytest

from serving.embedded.supervisor import supervisor
from serving.embedded.supervisor.supervisor import SupervisedComponent

HOUR = 3600.0
PATIENCE_SECONDS = 5


async def test_component_is_asked_at_once_and_once_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ASK_SECONDS", HOUR)
    component = SupervisedComponent("node", answered=0.0)
    question = asyncio.create_task(component.until_next_question())
    await asyncio.sleep(0)
    assert not question.done()
    component.note_start(1.0)
    await asyncio.wait_for(question, PATIENCE_SECONDS)
    another = asyncio.create_task(component.until_next_question())
    await asyncio.sleep(0)
    assert not another.done()
    another.cancel()


async def test_component_is_asked_often_before_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ASK_SECONDS", HOUR)
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.001)
    await asyncio.wait_for(SupervisedComponent("node").until_next_question(), PATIENCE_SECONDS)


async def test_component_that_answers_is_asked_after_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ASK_SECONDS", 0.001)
    monkeypatch.setattr(supervisor, "POLL_SECONDS", HOUR)
    component = SupervisedComponent("node", answered=0.0)
    await asyncio.wait_for(component.until_next_question(), PATIENCE_SECONDS)
