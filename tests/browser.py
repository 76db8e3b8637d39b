"""Pages in headless Chromium: their visible parts, log, network requests, and width."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = which("chromium"), which("chromedriver")
SECONDS = 60
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium-driver)"
)


class Browser:
    """A headless browser; `complaints` returns the errors of the page opened last."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1280, at: str = "") -> None:
        """Open a page in a window `width` pixels wide, at the element with the id `at` if given."""
        self.resize(width)
        self.complaints()  # those of the page before
        address = page.resolve().as_uri() + (f"#{at}" if at else "")
        self.driver.get("about:blank")  # the same page at another element is not loaded again
        self.driver.get(address)
        # Under load, Chromium has come back before the page was there.
        WebDriverWait(self.driver, SECONDS).until(
            lambda _: (
                self.run("return [location.href, document.readyState]") == [address, "complete"]
            ),
            f"{page} was not opened",
        )

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def be_dark(self, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """Return new log entries, and requests for anything except files and data in the page."""
        logged = [entry["message"] for entry in self.driver.get_log("browser")]
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        asked = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return logged + [url for url in asked if not url.startswith(("file:", "data:"))]

    @contextmanager
    def without_scripts(self) -> Iterator[None]:
        """Disable the pages' own scripts; `run` still works."""
        disabled = "Emulation.setScriptExecutionDisabled"
        self.driver.execute_cdp_cmd(disabled, {"value": True})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd(disabled, {"value": False})

    def shown(self, element: str) -> bool:
        """Return whether the element with this id is visible, if need be after scrolling."""
        found = self.driver.find_element(By.ID, element)
        return bool(found.is_displayed())

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window.

        The window's width is not `innerWidth`, which on a phone grows with a page too wide.
        """
        script = "const root = document.documentElement; return root.scrollWidth - root.clientWidth"
        return int(self.run(script))

    def pdf(self) -> bytes:
        """Print to PDF; retry once, because Chromium sometimes fails on a busy machine."""
        try:
            made = self.driver.execute_cdp_cmd("Page.printToPDF", {})
        except WebDriverException:
            made = self.driver.execute_cdp_cmd("Page.printToPDF", {})
        return base64.b64decode(made["data"])


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the installed browser; nothing is downloaded."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
