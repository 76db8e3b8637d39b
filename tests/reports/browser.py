"""Pages in headless Chromium: what they show, log, ask the network for, and how wide they are."""

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
    """A browser without a window. `open` also notes what is wrong with a page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1280, at: str = "") -> None:
        """Open a page, at the element of that id where one is named."""
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
        """What was logged, and what was asked for that is neither a file nor in the page."""
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
        """Let no page run a script of its own; `run` works all the same."""
        disabled = "Emulation.setScriptExecutionDisabled"
        self.driver.execute_cdp_cmd(disabled, {"value": True})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd(disabled, {"value": False})

    def shown(self, element: str) -> bool:
        """Whether the element of that id can be seen, by scrolling at most."""
        found = self.driver.find_element(By.ID, element)
        return bool(found.is_displayed())

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window.

        Not than `innerWidth`: a phone's grows with a page that is too wide.
        """
        script = "const root = document.documentElement; return root.scrollWidth - root.clientWidth"
        return int(self.run(script))

    def pdf(self) -> bytes:
        """Print to PDF; once more where Chromium gives up, as it does on a machine under load."""
        try:
            made = self.driver.execute_cdp_cmd("Page.printToPDF", {})
        except WebDriverException:
            made = self.driver.execute_cdp_cmd("Page.printToPDF", {})
        return base64.b64decode(made["data"])


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser that is installed; nothing is downloaded."""
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
