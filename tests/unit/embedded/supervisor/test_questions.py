import asyncio

from serving.embedded.supervisor.supervisor import Component
from serving.settings import SupervisorSettings

HOUR = 3600.0
PATIENCE_SECONDS = 5


async def test_component_is_asked_at_once_and_once_when_it_starts() -> None:
    component, settings = Component("node", answered=0.0), SupervisorSettings(ask_seconds=HOUR)
    question = asyncio.create_task(component.until_next_question(settings))
    await asyncio.sleep(0)
    assert not question.done()
    component.note_start(1.0)
    await asyncio.wait_for(question, PATIENCE_SECONDS)
    another = asyncio.create_task(component.until_next_question(settings))
    await asyncio.sleep(0)
    assert not another.done()
    another.cancel()


async def test_component_is_asked_often_before_its_first_answer() -> None:
    settings = SupervisorSettings(ask_seconds=HOUR, poll_seconds=0.001)
    await asyncio.wait_for(Component("node").until_next_question(settings), PATIENCE_SECONDS)


async def test_component_that_answers_is_asked_after_its_interval() -> None:
    settings = SupervisorSettings(ask_seconds=0.001, poll_seconds=HOUR)
    component = Component("node", answered=0.0)
    await asyncio.wait_for(component.until_next_question(settings), PATIENCE_SECONDS)
