"""The report's page in a real browser: the behaviour of its script, and no requests.

Headless Chromium with a temporary profile opens the page from a file.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from serving.objects import Object
from tests.objects.tuning import measured_experiments
from tuner.report import content, page
from tuner.settings import DEFAULTS

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
def report() -> Object:
    import datetime as dt

    with threadpool_limits(1):
        return content.of(
            *measured_experiments.story(), dt.datetime(2026, 11, 22, 5, 0, tzinfo=dt.UTC), DEFAULTS
        )


@pytest.fixture(scope="module")
def written(report: Object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.render(report))
    return path


@pytest.fixture
def opened(browser: WebDriver, written: Path) -> WebDriver:
    browser.get("about:blank")
    browsers.open_page(browser, written)
    return browser


def column(browser: WebDriver, index: int) -> list[str]:
    cells = browser.find_elements(By.CSS_SELECTOR, f"#trial-table tbody tr > :nth-child({index + 1})")
    return [cell.text for cell in cells]


def test_page_opens_without_console_messages_and_requests(browser: WebDriver, written: Path) -> None:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browsers.open_page(browser, written)
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requested = [
        m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"
    ]
    assert written.as_uri() in requested
    assert {url for url in requested if not url.startswith(browsers.NOISE)} <= {written.as_uri(), "data:,"}


def test_trials_sort_numerically_in_both_directions(opened: WebDriver, report: Object) -> None:
    heads = opened.find_elements(By.CSS_SELECTOR, "#trial-table thead th")
    names = [head.text.rstrip(" ↕↑↓") for head in heads]
    cost = names.index("cost per hour")
    ordered = sorted(row["costPerHour"] for row in report["trials"])
    heads[cost].find_element(By.TAG_NAME, "button").click()
    assert heads[cost].get_attribute("aria-sort") == "ascending"
    assert [float(text) for text in column(opened, cost)] == pytest.approx(ordered, rel=0.01)
    heads[cost].find_element(By.TAG_NAME, "button").click()
    assert heads[cost].get_attribute("aria-sort") == "descending"
    assert [float(text) for text in column(opened, cost)] == pytest.approx(ordered[::-1], rel=0.01)


def test_memory_sorts_by_size(opened: WebDriver) -> None:
    opened.find_elements(By.CSS_SELECTOR, "#trial-table thead button")[2].click()
    sizes = {"256Mi": 0, "512Mi": 1, "1Gi": 2, "2Gi": 3}
    shown = [sizes[text] for text in column(opened, 2)]
    assert shown == sorted(shown)
    assert len(set(shown)) == len(sizes)


def test_filter_shows_the_matching_trials_and_their_number(opened: WebDriver, report: Object) -> None:
    opened.find_element(By.ID, "filter").send_keys("Ran Out")
    rows = opened.find_elements(By.CSS_SELECTOR, "#trial-table tbody tr")
    shown = [row for row in rows if row.is_displayed()]
    expected = [row["number"] for row in report["trials"] if row["reason"] == "OutOfMemory"]
    assert [int(row.find_element(By.TAG_NAME, "th").text) for row in shown] == expected
    assert opened.find_element(By.ID, "matches").text == f"{len(expected)} of {len(rows)}"


def test_table_of_trials_agrees_with_the_json(opened: WebDriver, report: Object) -> None:
    data = json.loads(opened.execute_script("return document.getElementById('report').textContent"))
    assert data == report
    for index, axis in enumerate(report["question"]["axes"]):
        values = [
            next(s["value"] for s in row["settings"] if s["name"] == axis["name"]) for row in data["trials"]
        ]
        assert column(opened, index + 1) == values


def test_selected_pair_of_parameters_is_shown(opened: WebDriver) -> None:
    pairs = opened.find_elements(By.CSS_SELECTOR, "[data-pair]")
    select = Select(opened.find_element(By.ID, "pair"))
    for index in range(len(select.options)):
        select.select_by_index(index)
        assert [pair.is_displayed() for pair in pairs] == [i == index for i in range(len(pairs))]


def test_mark_shows_its_values_on_hover(opened: WebDriver) -> None:
    tip = opened.find_element(By.ID, "tip")
    assert not tip.is_displayed()
    mark = opened.find_element(By.CSS_SELECTOR, ".cell[data-tip]")

    def pointed_at(driver: WebDriver) -> bool:
        """Move onto the mark; a page that still scrolls hides the tip, which needs another move."""
        ActionChains(driver).move_to_element(mark).move_by_offset(1, 1).perform()
        return tip.is_displayed()

    WebDriverWait(opened, 10).until(pointed_at)
    assert tip.text.replace("\u00a0", " ") == str(mark.get_attribute("data-tip")).replace("\u00a0", " ")


def test_link_of_a_trial_shows_its_windows(opened: WebDriver) -> None:
    opened.find_element(By.CSS_SELECTOR, "#trial-table a[href='#trial-4']").click()
    assert opened.find_element(By.CSS_SELECTOR, "#trial-4 table").is_displayed()


def test_table_can_be_sorted_by_keyboard(opened: WebDriver) -> None:
    button = opened.find_element(By.CSS_SELECTOR, "#trial-table thead button")
    opened.execute_script("arguments[0].focus()", button)
    button.send_keys("\ue007")
    assert (
        opened.find_element(By.CSS_SELECTOR, "#trial-table thead th").get_attribute("aria-sort")
        == "ascending"
    )


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_page_is_not_wider_than_the_screen(opened: WebDriver, width: int) -> None:
    with browsers.emulated_width(opened, width):
        wide = opened.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(opened: WebDriver, scheme: str) -> None:
    with browsers.emulated_scheme(opened, scheme):
        assert opened.execute_script(browsers.CONTRAST) == []


def test_page_is_complete_without_its_script(opened: WebDriver, written: Path) -> None:
    with browsers.scripts_disabled(opened):
        browsers.open_page(opened, written)
        pairs = opened.find_elements(By.CSS_SELECTOR, "[data-pair]")
        assert pairs
        assert all(pair.is_displayed() for pair in pairs)
        assert opened.find_element(By.ID, "trial-table").is_displayed()
