"""The page in headless Chromium, opened from a file: what a reader clicks, types and sees. Skipped without one."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fglbench.registry import Parameter
from fglbench.report import build
from fglbench.report.html import Card

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install fglbench[dev])")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
]  # fmt: skip
EVIL = '<img src=x onerror="window.evil=1"><script>window.evil=1</script>'

# The contrast (WCAG 2) of every visible piece of text with the first opaque background under it.
CONTRAST = """
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const found = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !element.checkVisibility() || element.closest("script, caption, .skip")) continue;
  let ground = [0, 0, 0, 0];
  for (let at = element; at && ground[3] === 0; at = at.parentElement) {
    const value = parse(getComputedStyle(at).backgroundColor);
    ground = value.length === 3 ? [...value, 1] : value;
  }
  const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground)].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), element.tagName + " " + element.className + " " + element.textContent.trim()]);
}
return found.sort((x, y) => x[0] - y[0]);
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, made: SimpleNamespace) -> str:
    """A page of two boards: 13 methods, one of them hostile, on three datasets; one failed once, one was not run."""
    rng = np.random.default_rng(1)
    methods = [f"method-{i}" for i in range(9)] + ["fedavg", "fedavg-plus", EVIL, "global"]
    rows = []
    for dataset in ("cora", "pubmed", "a-dataset-with-a-rather-long-name"):
        for method in methods:
            for seed in (0, 1, 2):
                cost = {"upload_bytes_best": int(10 ** rng.uniform(3, 9)), "train_seconds": float(rng.uniform(1, 2000))}
                score = float(rng.uniform(0.3, 0.99))
                personal = {"score_metric": "personal"} if method in methods[:4] else {}
                if (method, dataset) == ("method-3", "pubmed"):
                    rows.append(made.row(dataset, method, seed, error="loss is nan " + EVIL))
                elif (method, dataset) != ("method-5", "cora"):
                    rows.append(made.row(dataset, method, seed, score, **cost, **personal))
    rows += [made.row("cora", method, 0, 0.5, suite="second") for method in ("fedavg", "global")]
    folder = made.write(tmp_path_factory.mktemp("page") / "results", rows)
    report = build.make(folder, None)
    build.write(report)
    parameters = [Parameter("mu", "0.1", "float", "a weight " * 20)]
    doc = f"Someone, CVPR 2021 (arXiv 2103.16257). {EVIL}\n\n    {'f(x) + ' * 30}0\n"
    build.write_page(report, folder / "page.html", {"fedavg": Card(doc, "methods/fedavg.py", (), parameters)})
    return (folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    names = ("google-chrome", "chromium", "chromium-browser", "chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "no Chromium with chromedriver on the PATH (Debian: apt install chromium chromium-driver)"
        (pytest.fail if os.environ.get("FGLBENCH_BROWSER") == "required" else pytest.skip)(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in [*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    started.command_executor.client_config.timeout = 600  # seconds: the machine may have other work
    started.set_script_timeout(540)
    yield started
    started.quit()


@pytest.fixture
def tab(chromium: Any, address: str) -> Iterator[Any]:
    """The page, freshly opened on a desk; the test fails if anything lands on the console or goes to another place."""
    show(chromium, 1280, 900)
    chromium.get("about:blank")
    chromium.get_log("browser")
    chromium.get_log("performance")
    chromium.get(address)
    yield chromium
    assert chromium.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert address in {url.partition("#")[0] for url in asked}
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert chromium.execute_script("return window.evil") is None


def show(tab: Any, width: int, height: int, scheme: str = "light") -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    tab.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    tab.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [feature]})


def lines(tab: Any, table: str) -> list[dict[str, Any]]:
    """The rows of a table from top to bottom: entry, whether it is shown, and the values of its cells."""
    return tab.execute_script(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows].map((row) => ({"
        "entrant: row.dataset.entrant,"
        "shown: row.checkVisibility(),"
        "values: [...row.cells].map((cell) => cell.dataset.value ?? null)}))",
        table,
    )


def heads(tab: Any, table: str) -> list[Any]:
    return tab.find_elements(By.CSS_SELECTOR, f'[id="{table}"] thead th')


def in_order(rows: list[dict[str, Any]], column: int, falling: bool, key: Callable[[str], Any]) -> list[str]:
    """What Python makes of it: by value, those without one last, equal ones in their first order."""
    known = [row for row in rows if row["values"][column] is not None]
    known.sort(key=lambda row: key(row["values"][column]), reverse=falling)
    return [row["entrant"] for row in [*known, *(row for row in rows if row["values"][column] is None)]]


def test_every_column_sorts_both_ways_and_back(tab: Any) -> None:
    for table in ("overall:demo", "tasks:demo", "incomplete:demo"):
        first = lines(tab, table)
        assert len(first) >= 2
        sorted_by = 0
        for column, head in enumerate(heads(tab, table)):
            if not head.find_elements(By.TAG_NAME, "button"):
                assert head.get_attribute("aria-sort") is None
                continue
            key = str if head.text.startswith(("Method", "Uploads")) else float
            turns = []
            for _ in range(2):
                head.find_element(By.TAG_NAME, "button").click()
                turns.append(head.get_attribute("aria-sort"))
                order = [row["entrant"] for row in lines(tab, table)]
                if key is float:
                    assert order == in_order(first, column, turns[-1] == "descending", key)
            assert set(turns) == {"ascending", "descending"}
            assert [each.get_attribute("aria-sort") for each in heads(tab, table)].count("none") >= 1
            falling = ("score", "cora", "pubmed", "a-dataset", "wins", "tasks", "runs")
            if head.text.lower().startswith(falling) and table != "overall:demo":
                assert turns[0] == "descending"
            head.find_element(By.TAG_NAME, "button").click()
            assert head.get_attribute("aria-sort") == "none"
            assert lines(tab, table) == first
            sorted_by += 1
        assert sorted_by >= 3


def test_methods_sort_by_name_with_numbers_as_numbers(tab: Any) -> None:
    button = heads(tab, "tasks:demo")[0].find_element(By.TAG_NAME, "button")
    button.click()
    names = [row["entrant"] for row in lines(tab, "tasks:demo") if row["entrant"] != EVIL]
    assert names == sorted(names)
    button.click()
    assert [row["entrant"] for row in lines(tab, "tasks:demo") if row["entrant"] != EVIL] == names[::-1]


def test_the_keyboard_reaches_and_sorts(tab: Any) -> None:
    field = tab.find_element(By.CSS_SELECTOR, "#board-demo input[type=search]")
    field.send_keys("fedavg", Keys.TAB)
    first = heads(tab, "overall:demo")[0].find_element(By.TAG_NAME, "button")
    for _ in range(8):
        if tab.switch_to.active_element == first:
            break
        tab.switch_to.active_element.send_keys(Keys.TAB)
    assert tab.switch_to.active_element == first
    assert first.value_of_css_property("outline-style") == "solid"
    for key in (Keys.ENTER, Keys.SPACE):
        before = heads(tab, "overall:demo")[0].get_attribute("aria-sort")
        tab.switch_to.active_element.send_keys(key)
        assert heads(tab, "overall:demo")[0].get_attribute("aria-sort") not in (None, "none", before)
    tab.switch_to.active_element.send_keys(Keys.TAB)
    assert tab.switch_to.active_element == heads(tab, "overall:demo")[1].find_element(By.TAG_NAME, "button")


def test_filters_hide_rows_and_say_how_many_are_left(tab: Any) -> None:
    board = tab.find_element(By.ID, "board-demo")
    field = board.find_element(By.CSS_SELECTOR, "input[type=search]")
    count = board.find_element(By.CLASS_NAME, "count")
    clear = board.find_element(By.CLASS_NAME, "clear")
    everyone = lines(tab, "tasks:demo")
    assert count.text == "13 methods"
    assert not clear.is_displayed()

    def shown(table: str = "tasks:demo") -> set[str]:
        return {row["entrant"] for row in lines(tab, table) if row["shown"]}

    for typed, words in (("FedAvg", ["fedavg"]), ("plus, method-1  global", ["plus", "method-1", "global"])):
        field.clear()
        field.send_keys(typed)
        fitting = {row["entrant"] for row in everyone if any(word in row["entrant"] for word in words)}
        assert shown() == fitting
        assert shown("overall:demo") == fitting
        assert count.text == f"{len(fitting)} of 13 methods"
    field.clear()
    field.send_keys("nobody")
    assert (shown(), count.text) == (set(), "none of 13 methods")
    clear.click()
    assert len(shown()) == 13
    assert tab.switch_to.active_element == field
    fitting = {
        "standing": {"reference": {"global"}, "incomplete": {"method-3", "method-5"}},
        "scored": {"personal": {"method-0", "method-1", "method-2", "method-3"}},
        "family": {"shared model": {"fedavg"}, "reference": {"global"}},
        "uploads": {"models": {"fedavg"}, "nothing": {"global"}},
        "models": {"all alike": {"fedavg", "global"}},
    }
    for name, expected in fitting.items():
        menu = Select(board.find_element(By.CSS_SELECTOR, f"select[data-filter={name}]"))
        found = {}
        for option in menu.options[1:]:
            menu.select_by_visible_text(option.text)
            found[option.text] = shown()
        assert expected.items() <= found.items()
        assert set().union(*found.values()) == {row["entrant"] for row in everyone}
        assert sum(map(len, found.values())) == 13  # here each has one value of a trait
        menu.select_by_index(0)
    assert len(lines(tab, "tasks:second")) == sum(row["shown"] for row in lines(tab, "tasks:second"))


def test_the_dataset_menu_shows_one_view(tab: Any) -> None:
    menu = Select(tab.find_element(By.CSS_SELECTOR, "#board-demo [data-views]"))
    assert [option.text for option in menu.options[1:]] == ["a-dataset-with-a-rather-long-name", "cora", "pubmed"]
    for option in menu.options:
        menu.select_by_visible_text(option.text)
        views = tab.find_elements(By.CSS_SELECTOR, "#board-demo .view")
        visible = [view.get_attribute("id") for view in views if view.is_displayed()]
        assert visible == [option.get_attribute("value")]


def test_a_kind_of_data_chooses_columns(tab: Any) -> None:
    menu = Select(tab.find_element(By.CSS_SELECTOR, "#board-demo select[data-groups]"))
    assert [option.text for option in menu.options] == ["any", "citations", "other"]

    def columns() -> list[str]:
        script = (
            "return [...document.getElementById('tasks:demo').rows].map((row) => [...row.cells]"
            ".map((cell, i) => cell.checkVisibility() ? i : -1).filter((i) => i >= 0).join(' '))"
        )
        (same,) = set(tab.execute_script(script))  # the heading's cells and those of every line
        heads = tab.execute_script(
            "return [...document.getElementById('tasks:demo').tHead.rows[0].cells].map((cell) => cell.textContent)"
        )
        return [heads[int(i)].split()[0] for i in same.split()]

    for choice, expected in (
        ("citations", ["Method", "cora", "pubmed"]),
        ("other", ["Method", "a-dataset-with-a-rather-long-name"]),
        ("any", ["Method", "a-dataset-with-a-rather-long-name", "cora", "pubmed"]),
    ):
        menu.select_by_visible_text(choice)
        assert columns() == expected


def test_a_table_is_saved_as_csv_from_the_page_itself(tab: Any, tmp_path: Path) -> None:
    tab.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    link = tab.find_element(By.CSS_SELECTOR, '[download="task-demo-cora.csv"]')
    tab.execute_script("arguments[0].click()", link)
    WebDriverWait(tab, 20).until(lambda _: (tmp_path / "task-demo-cora.csv").exists())
    with (tmp_path / "task-demo-cora.csv").open(newline="", encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    shown = {row["entrant"]: row["values"] for row in lines(tab, "task:demo:cora")}
    assert {row["Method"] for row in table} == {name.replace(EVIL, EVIL) for name in shown}
    for row in table:
        assert float(row["Score, %"]) == pytest.approx(float(shown[row["Method"]][1]), rel=1e-5)
        assert row["Score, %, as shown"].startswith(f"{100 * float(row['Score, %']):.1f}"[:3])


def test_a_link_opens_the_part_of_a_method(tab: Any) -> None:
    part = tab.find_element(By.ID, "method-fedavg")
    tab.find_element(By.CSS_SELECTOR, "#methods input[type=search]").send_keys("global")
    assert not part.is_displayed()
    link = tab.find_element(By.CSS_SELECTOR, '[id="overall:demo"] [href="#method-fedavg"]')
    tab.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    WebDriverWait(tab, 20).until(lambda _: part.get_attribute("open"))
    assert part.find_element(By.CSS_SELECTOR, "table.parameters").is_displayed()
    tab.execute_script("location.hash = '%E0%A4%A'")  # not a name at all
    tab.execute_script("location.hash = 'nowhere'")


def test_it_fits_a_phone(tab: Any) -> None:
    show(tab, 360, 800)
    tab.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    menu = Select(tab.find_element(By.CSS_SELECTOR, "#board-demo [data-views]"))
    for option in menu.options:
        menu.select_by_visible_text(option.text)
        wide, window = tab.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert (wide <= window, window) == (True, 360)
    for table in ("overall:demo", "task:demo:pubmed"):
        start, end, room = tab.execute_script(
            "const box = document.getElementById(arguments[0]).parentElement;"
            "const name = box.querySelector('tbody th').getBoundingClientRect.bind(box.querySelector('tbody th'));"
            "box.scrollLeft = 0; const start = name().left; const room = box.scrollWidth - box.clientWidth;"
            "box.scrollLeft = room; return [start, name().left, room]",
            table,
        )
        assert room > 50  # the table is wider than its box and scrolls there
        assert end == pytest.approx(start, abs=1)  # and the method stays in sight


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(tab: Any, scheme: str) -> None:
    show(tab, 1280, 900, scheme)
    tab.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    found = tab.execute_script(CONTRAST)
    assert len(found) > 300
    assert found[0][0] >= 4.5, found[0]
    ground = tab.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == (scheme == "dark")


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core, which one of the development tools brings."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-core is not installed (pip install fglbench[dev])")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


def violations(tab: Any, axe: str) -> list[str]:
    """What axe-core finds serious or critical, with the first element of each."""
    tab.execute_script(axe)
    found = tab.execute_async_script(
        "const done = arguments[0];"
        "axe.run(document, {resultTypes: ['violations']}).then((all) => done(all.violations"
        ".filter((each) => ['serious', 'critical'].includes(each.impact))"
        ".map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`)), (error) => done([String(error)]))"
    )
    return [str(each) for each in found]


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory, made: SimpleNamespace) -> str:
    """A page with every kind of part and little of each: axe looks at every pair of elements."""
    rows = [made.row(data, name, seed, 0.5 + 0.1 * seed + 0.01 * i) for data in ("cora", "amazon-photo")
            for i, name in enumerate(("fedavg", "fedproto")) for seed in (0, 1, 2)]  # fmt: skip
    folder = made.write(tmp_path_factory.mktemp("little") / "results", [*rows, made.row("cora", "fml", 0, error="nan")])
    (folder / "FINDINGS.md").write_text("# Findings\n\n## First\n\n| a | b |\n|:--|--:|\n| 1 | 2 |\n")
    report = build.make(folder, None, figures=False)
    build.write(report)
    build.write_page(report, folder / "page.html", {"fedproto": Card("x (arXiv 2105.00243)", "a.py", ("fedavg",))})
    return (folder / "page.html").as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (360, "light")])
def test_axe_finds_nothing_serious(chromium: Any, little: str, axe: str, width: int, scheme: str) -> None:
    show(chromium, width, 900, scheme)
    chromium.get(little)
    chromium.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert violations(chromium, axe) == []
    chromium.execute_script("document.body.append(document.createElement('input'))")  # and it would find something
    assert [each.split(":")[0] for each in violations(chromium, axe)] == ["label"]


def test_print_leaves_the_controls_out(tab: Any) -> None:
    tab.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not tab.find_element(By.TAG_NAME, "nav").is_displayed()
    assert not any(bar.is_displayed() for bar in tab.find_elements(By.CLASS_NAME, "tools"))
    assert {box.value_of_css_property("overflow-x") for box in tab.find_elements(By.CLASS_NAME, "scroll")} == {
        "visible"
    }


def test_headings_do_not_skip_a_level(tab: Any) -> None:
    levels = tab.execute_script("return [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => +h.tagName[1])")
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_the_policy_forbids_the_network(chromium: Any, address: str) -> None:
    chromium.get(address)
    blocked = chromium.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', (event) => done([event.violatedDirective, event.blockedURI]));"
        "fetch('https://example.org/').catch(() => 0);"
    )
    assert blocked[0] == "connect-src"
    assert blocked[1].startswith("https://example.org")
