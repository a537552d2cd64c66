"""The page of a simulation in a real browser: its script, and no requests."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.report import page, schema
from autoscaler.report.schema import SimulationReport
from tests.objects import simulations

pytest.importorskip("selenium", reason="selenium is not installed (extra `dev`)")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.rig import browsers


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with browsers.chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def report() -> SimulationReport:
    return simulations.report()


@pytest.fixture(scope="module")
def written(report: SimulationReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "burst.html"
    path.write_text(page.render(report))
    return path


@pytest.fixture
def opened(browser: WebDriver, written: Path) -> WebDriver:
    browser.get("about:blank")
    browsers.open_page(browser, written)
    return browser


def test_page_opens_without_console_messages_or_requests(browser: WebDriver, written: Path) -> None:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browsers.open_page(browser, written)
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert written.as_uri() in urls
    assert {url for url in urls if not url.startswith(browsers.NOISE)} <= {written.as_uri(), "data:,"}


def test_page_has_the_json(opened: WebDriver, report: SimulationReport) -> None:
    data = json.loads(opened.execute_script("return document.getElementById('report').textContent"))
    assert data == json.loads(json.dumps(schema.as_json(report)))


def test_decision_shows_its_reason_on_hover(opened: WebDriver, report: SimulationReport) -> None:
    tip = opened.find_element(By.ID, "tip")
    assert not tip.is_displayed()
    mark = opened.find_elements(By.CSS_SELECTOR, "[data-pair='0'] .hit")[150]

    def pointed_at(driver: WebDriver) -> bool:
        ActionChains(driver).move_to_element(mark).perform()
        return tip.is_displayed()

    WebDriverWait(opened, 10).until(pointed_at)
    assert report.tracks[0].columns[150].message in tip.text.replace("\u00a0", " ")


def test_replicas_of_one_policy_are_shown_and_another_can_be_picked(
    opened: WebDriver, report: SimulationReport
) -> None:
    parts = opened.find_elements(By.CSS_SELECTOR, "[data-pair]")
    select = Select(opened.find_element(By.ID, "pair"))
    assert [option.text for option in select.options] == [timeline.name for timeline in report.tracks]
    for index in range(len(select.options)):
        select.select_by_index(index)
        assert [part.is_displayed() for part in parts] == [i == index for i in range(len(parts))]


def test_policies_sort_by_violations_as_numbers(opened: WebDriver, report: SimulationReport) -> None:
    opened.find_elements(By.CSS_SELECTOR, "#policies thead button")[1].click()
    names = [cell.text for cell in opened.find_elements(By.CSS_SELECTOR, "#policies tbody th")]
    values = [report.row(name).violations for name in names]
    assert values == sorted(values)
    assert len(set(values)) > 1


def test_filter_keeps_changes_with_the_text(opened: WebDriver, report: SimulationReport) -> None:
    reason = report.changes[0].reason
    opened.find_element(By.ID, "filter").send_keys(reason)
    rows = opened.find_elements(By.CSS_SELECTOR, "#change-table tbody tr")
    shown = [row for row in rows if row.is_displayed()]
    assert len(rows) == len(report.changes)
    assert len(shown) == sum(reason.lower() in f"{c.reason} {c.message}".lower() for c in report.changes)


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_page_fits_the_width_of_the_screen(opened: WebDriver, width: int) -> None:
    with browsers.emulated_width(opened, width):
        wide = opened.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_to_its_background(opened: WebDriver, scheme: str) -> None:
    with browsers.emulated_scheme(opened, scheme):
        assert opened.execute_script(browsers.CONTRAST) == []


def test_page_is_complete_without_its_script(opened: WebDriver, written: Path) -> None:
    with browsers.scripts_disabled(opened):
        browsers.open_page(opened, written)
        parts = opened.find_elements(By.CSS_SELECTOR, "[data-pair]")
        assert len(parts) > 1
        assert all(part.is_displayed() for part in parts)
        assert opened.find_element(By.ID, "change-table").is_displayed()
