"""The documentation site as a reader of its folder sees it, without a server, in Chromium."""

import pytest
from browser import SECONDS, needs_chromium
from documented import ROOT
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

BUILT = ROOT / "build" / "docs"

pytestmark = [
    pytest.mark.docs,
    needs_chromium,
    pytest.mark.skipif(not BUILT.exists(), reason="needs the site: make docs"),
]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", ["index.html", "reference/contract.html"])
def test_search_finds_a_page_and_leads_there(browser, page, width):
    browser.open(BUILT / page, width)
    waiting, find = WebDriverWait(browser.driver, SECONDS), browser.driver.find_element
    icon = find(By.CSS_SELECTOR, "label.md-header__button[for=__search]")
    if icon.is_displayed():  # on a phone
        icon.click()
    field = find(By.CSS_SELECTOR, "input.md-search__input")
    waiting.until(lambda _: field.is_displayed())
    field.send_keys("smallest possible family")
    results = (By.CSS_SELECTOR, "a.md-search-result__link")
    first = waiting.until(lambda driver: driver.find_elements(*results))[0]
    assert browser.complaints() == []
    first.send_keys(Keys.ENTER)
    waiting.until(lambda driver: "/adding-a-variant.html" in driver.current_url)
    assert browser.complaints() == []


def test_opening_any_page_asks_no_network_and_logs_no_error(browser):
    pages = sorted({*BUILT.rglob("*.html")} - {BUILT / "404.html"})  # only a server shows that one
    complaints = {}
    for page in pages:
        browser.open(page, 390)
        complaints[page.relative_to(BUILT).as_posix()] = browser.complaints()
    assert len(pages) > 20
    assert not any(complaints.values()), complaints
