"""Headless Chromium with a temporary profile; tests are skipped if it is not installed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

QUIET = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,1000",
)
NOISE = ("chrome://", "chrome-extension://", "devtools://")


def program(*names: str, package: str) -> str:
    path = next((path for name in names if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"{names[0]} is not installed (Debian package {package})")
    return path


@contextmanager
def chromium(profile: Path) -> Iterator[WebDriver]:
    """Yield a browser, and close it at the end."""
    path = program("chromium", "chromium-browser", "google-chrome", package="chromium")
    service = program("chromedriver", package="chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = path
    for argument in (*QUIET, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # with a sandbox Chromium refuses to run as root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(service))
    try:
        yield driver
    finally:
        driver.quit()


def open_page(driver: WebDriver, page: Path) -> None:
    """Open a page of a file, and wait for its script: on a busy machine `get` may return earlier."""
    driver.get(page.as_uri())
    loaded = "return document.readyState === 'complete' && location.href === arguments[0]"
    WebDriverWait(driver, 10).until(lambda _: driver.execute_script(loaded, page.as_uri()))


@contextmanager
def emulated_width(driver: WebDriver, pixels: int) -> Iterator[None]:
    """Give the screen this width, below 600 pixels that of a phone."""
    metrics = {"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": pixels < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def emulated_scheme(driver: WebDriver, scheme: str) -> Iterator[None]:
    """Let the reader prefer the colour scheme `light` or `dark`."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@contextmanager
def scripts_disabled(driver: WebDriver) -> Iterator[None]:
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


CONTRAST = """
const linear = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
const lum = c => { const [r, g, b] = c.map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const rgb = s => {
  const m = s.match(/[\\d.]+/g).map(Number);
  return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3);
};
const background = e => {
  for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c) return c; }
  return [255, 255, 255];
};
const faults = [];
const texts = 'h1,h2,h3,p,li,dt,dd,small,td,th,summary,code,a,label,select,button,svg text';
for (const e of document.querySelectorAll(texts)) {
  if (!e.textContent.trim() || e.closest('[hidden]') || e.classList.contains('inside')) continue;
  const style = getComputedStyle(e);
  const svg = e.closest('svg');
  const ink = rgb(svg ? style.fill : style.color), page = background(svg ? svg.parentElement : e);
  if (!ink) continue;
  const [a, b] = [lum(ink), lum(page)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  const name = e.tagName + ' ' + e.className;
  if (ratio < 4.5) faults.push(name + ' ' + ratio.toFixed(2) + ' ' + e.textContent.slice(0, 30));
}
return faults;
"""
"""WCAG 2.2, 1.4.3: contrast of at least 4.5 to 1 (https://www.w3.org/TR/WCAG22/#contrast-minimum)."""
