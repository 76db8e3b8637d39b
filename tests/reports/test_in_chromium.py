"""The three kinds of pages as a reader sees them, in headless Chromium."""

import pytest
from browser import needs_chromium
from made_up_profiles import COMPILED, PROBLEM, profile
from made_up_ranks import with_ranks
from made_up_results import cell, family_lines, no_png, past_lines, write
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness.measuring.profile.flame_graph import Frame
from reports.changes.page import write_comparison
from reports.profile.page import flame_page
from reports.report.page import write_report

pytestmark = needs_chromium

HOSTILE = ("<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "{{ 7*7 }} `a|b`")
LIGHT, DARK = (255, 255, 255), (21, 24, 28)


def all_lines():
    lines = with_ranks([*family_lines(), *past_lines()])
    return [*lines, *(cell(name, status="failed", reason=name, decision=None) for name in HOSTILE)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return three pages by name; each page on results has the cells that it must contain."""
    folder = tmp_path_factory.mktemp("pages")
    before = all_lines()
    now = [
        line
        | {"counters": {"copies": 7}, "fingerprint": "0ther" if line["decision"] == "own" else None}
        for line in before[2:]
    ]
    a, b = write(folder / "a.jsonl", before), write(folder / "b.jsonl", now)
    flames = folder / "flames.html"
    odd = profile({(Frame(name, name),): 1.0 for name in HOSTILE})
    flames.write_text(flame_page([odd, COMPILED], PROBLEM), encoding="utf-8")
    with no_png():
        return {
            "report": write_report(a, folder / "report"),
            "comparison": write_comparison(a, b, folder / "comparison"),
            "flames": flames,
        }


@pytest.fixture(params=["report", "comparison", "flames"])
def page(request, pages, browser):
    browser.be_dark(False)
    browser.open(pages[request.param])
    return browser


@pytest.fixture
def report(pages, browser):
    browser.be_dark(False)
    browser.open(pages["report"])
    return browser


def texts(browser, table, column):
    """Return the texts of a table's column in the visible rows."""
    return browser.run(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
        ".filter(row => row.offsetParent).map(row => row.cells[arguments[1]].textContent)",
        table,
        column,
    )


def heading(browser, table, column):
    return browser.driver.find_elements(By.CSS_SELECTOR, f"#{table} thead button")[column]


def test_nothing_is_logged_and_nothing_asked_of_a_network(page):
    assert page.complaints() == []
    assert page.run("return document.readyState") == "complete"
    assert page.run("return document.querySelectorAll('main section').length") > 1


@pytest.mark.parametrize("width", [375, 1280])
def test_no_page_is_wider_than_its_window(page, width):
    page.resize(width)
    assert page.overflow() <= 0


def test_no_name_becomes_a_part_of_the_page(page):
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.run("return document.querySelectorAll('script').length") <= 2


@pytest.mark.parametrize(("dark", "paper"), [(False, LIGHT), (True, DARK)])
def test_pages_and_figures_follow_the_colour_scheme(page, dark, paper):
    page.be_dark(dark)
    colour = page.run("return getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb({}, {}, {})".format(*paper)
    inked = page.run(
        "return [...document.querySelectorAll('.card svg text')]"
        ".map(text => getComputedStyle(text).fill)"
    )
    if inked:
        named = "rgb(228, 231, 234)" if dark else "rgb(29, 33, 38)"
        assert inked.count(named) > len(inked) / 2


def test_each_prints(page):
    made = page.pdf()
    assert made.startswith(b"%PDF")
    assert len(made) > 10_000


def test_every_cell_is_shown(pages, browser):
    wanted = {line["cell"] for line in all_lines()}
    browser.be_dark(False)
    for name, table in (("report", "boxing-cells-table-1"), ("comparison", "all-cells-table-1")):
        browser.open(pages[name], at=table)
        assert set(texts(browser, table, 0)) == wanted


def test_a_click_sorts_by_value_and_leaves_dashes_last(pages, report):
    table = "boxing-cells-table-1"
    report.open(pages["report"], at=table)
    titles = report.run(
        "return [...document.querySelectorAll('#' + arguments[0] + ' th')].map(t => t.textContent)",
        table,
    )
    column = titles.index("CPU time")
    button = heading(report, table, column)

    def order():
        button.click()
        state = report.run("return arguments[0].parentElement.ariaSort", button)
        held = report.run(
            "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
            ".map(row => row.cells[arguments[1]].dataset.sort)",
            table,
            column,
        )
        return state, held

    for state, reverse in (("ascending", False), ("descending", True)):
        told, held = order()
        values = [float(value) for value in held if value is not None]
        assert told == state
        assert len(values) > 20
        assert values == sorted(values, reverse=reverse)
        assert None in held
        assert held[len(values) :] == [None] * (len(held) - len(values))
    shown = texts(report, table, column)
    assert shown[-1] == "—"
    units = {text.split()[-1] for text in shown if text != "—"}
    assert len(units) > 2, "values of several units are sorted here"


def test_the_keyboard_sorts_too_and_one_column_at_a_time(pages, report):
    table = "boxing-ladder-table-1"
    report.open(pages["report"], at=table)
    first, second = heading(report, table, 0), heading(report, table, 3)
    report.run("arguments[0].focus()", first)
    first.send_keys(Keys.ENTER)
    names = texts(report, table, 0)
    assert names == sorted(names)
    report.run("arguments[0].focus()", second)
    second.send_keys(Keys.SPACE)
    states = report.run(
        "return [...document.querySelectorAll('#' + arguments[0] + ' th')].map(th => th.ariaSort)",
        table,
    )
    assert states.count("none") == len(states) - 1
    assert states[3] == "ascending"


def test_every_table_can_be_sorted(page):
    script = "return [...document.querySelectorAll('th')].every(t => t.querySelector('button'))"
    assert page.run(script)


def test_a_filter_says_how_many_rows_are_left(pages, report):
    table = "boxing-cells-table-1"
    report.open(pages["report"], at=table)
    box = report.driver.find_element(By.CSS_SELECTOR, f".filter[data-table={table}]")
    whole = len(texts(report, table, 0))
    box.find_element(By.TAG_NAME, "input").send_keys("QUICK boxes=20")
    assert texts(report, table, 0) == ["boxing/quick-copy@crates[boxes=20,seed=1]/toy_rack:4"]
    assert box.text == f"1 of {whole} rows"


def test_without_scripts_all_is_there(pages, browser):
    with browser.without_scripts():
        browser.open(pages["report"], at="boxing-cells")
        assert not any(
            box.is_displayed() for box in browser.driver.find_elements(By.CSS_SELECTOR, ".filter")
        )
        summary = browser.driver.find_element(By.CSS_SELECTOR, "#boxing-cells summary")
        assert summary.is_displayed()
        if not browser.shown("boxing-cells-table-1"):
            summary.click()
        text = browser.driver.find_element(By.ID, "boxing-cells").text
    for line in family_lines():
        assert line["cell"] in text


def test_a_flame_graph_without_room_waits_until_there_is_some(pages, browser):
    browser.open(pages["flames"])
    resized = "graph.style.width = arguments[0]; dispatchEvent(new Event('resize'));"
    script = (
        f"const graph = document.getElementById('graph'); {resized} return graph.childElementCount"
    )
    drawn = browser.run(script, "auto")
    browser.run(script, "0px")
    assert browser.run(script, "auto") == drawn > 3
    assert browser.complaints() == []
