"""The pages in headless Chromium: clicks, input and visible text. Skipped without Chromium."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fglbench.report import build

from . import samples

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install fglbench[dev])")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
]  # fmt: skip
MINUS = "\N{MINUS SIGN}"
NODES = 5000  # maximum of a page with the elements of its script
EVIL = '<img src=x onerror="window.evil=1"><script>window.evil=1</script>'
SCORES = {  # method -> scores on cora, wiki, tolokers
    "fedavg": (0.80, 0.60, 0.50), "feddc": (0.82, 0.59, 0.70), "local": (0.70, 0.65, 0.60), EVIL: (0.10, 0.20, 0.30),
}  # fmt: skip
KINDS = ("index.html", "board-demo.html", "method-feddc.html", "dataset-cora.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of one board: four methods, one with a hostile name, and a reference."""
    rows = [samples.row(dataset, method, seed, scores[i] + 0.001 * seed)
            for method, scores in {**SCORES, "global": (0.9, 0.9, 0.9)}.items()
            for i, dataset in enumerate(("cora", "wiki", "tolokers")) for seed in (0, 1, 2)]  # fmt: skip
    report = build.make(samples.write(tmp_path_factory.mktemp("pages") / "results", rows), None)
    build.write(report)
    folder = tmp_path_factory.mktemp("site")
    build.write_site(report, folder)
    return folder


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
def tab(chromium: Any, site: Path) -> Iterator[Any]:
    """A wide tab. The test fails if the console has messages or the page requests another host."""
    show(chromium, 1280)
    chromium.get("about:blank")
    chromium.get_log("browser")
    chromium.get_log("performance")
    yield chromium
    assert chromium.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "about"}
    assert chromium.execute_script("return window.evil") is None


def show(tab: Any, width: int, scheme: str = "light") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    tab.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    tab.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [feature]})


def visit(tab: Any, site: Path, page: str, state: str = "") -> None:
    tab.get("about:blank")
    tab.get((site / page).as_uri() + state)


def cells(tab: Any, box: str) -> list[list[str]]:
    """The visible texts of a table, heading first."""
    texts = "(row) => [...row.cells].map((cell) => cell.innerText.trim())"
    return tab.execute_script(f"return [...document.querySelectorAll(arguments[0] + ' tr')].map({texts})", box)


def choose(tab: Any, label: str, text: str, section: str = "#scores") -> None:
    field = tab.find_element(By.XPATH, f"//*[@id='{section[1:]}']//label[starts-with(., '{label}')]/select")
    Select(field).select_by_visible_text(text)


def test_a_tab_shows_one_part_and_the_address_stores_it(tab: Any, site: Path) -> None:
    visit(tab, site, "board-demo.html")
    buttons = tab.find_elements(By.CSS_SELECTOR, ".tabs button")
    names = [button.text for button in buttons]
    assert names[0] == "Ranking" and {"Scores", "Compare", "Figures", "Protocol"} <= {*names}
    for button in buttons:
        button.click()
        visible = [panel for panel in tab.find_elements(By.CSS_SELECTOR, "[data-tab]") if panel.is_displayed()]
        assert [panel.get_attribute("data-tab") for panel in visible] == [button.text]
    buttons[names.index("Scores")].click()
    address = tab.current_url
    assert address.endswith("#tab=Scores")
    tab.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert tab.current_url.endswith("#tab=Compare")
    visit(tab, site, "board-demo.html", address.partition("html")[2])
    assert tab.find_element(By.ID, "scores").is_displayed()


def test_address_stores_metric_tasks_and_columns(tab: Any, site: Path) -> None:
    visit(tab, site, "board-demo.html", "#tab=Scores")
    assert tab.find_element(By.ID, "all").is_displayed()
    choose(tab, "Metric", "Macro-F1")
    head, *rows = cells(tab, "#chosen")
    assert head[:3] == ["Method", "Mean rank", "Mean Macro-F1, %"]
    row_of = {row[0]: row for row in rows}
    assert float(row_of["FedAvg"][2]) == pytest.approx(100 * (0.80 + 0.60 + 0.50 + 0.003) / 6, abs=0.01)
    tab.find_element(By.CSS_SELECTOR, "#scores input[value=tolokers]").click()
    row_of = {row[0]: row for row in cells(tab, "#chosen")[1:]}
    assert float(row_of["FedAvg"][2]) == pytest.approx(100 * (0.80 + 0.60 + 0.002) / 4, abs=0.01)
    # cora: FedDC, FedAvg, local; wiki: local, FedAvg, FedDC. The reference has no rank.
    assert [row_of[name][1] for name in ("FedAvg", "FedDC", "Local training", EVIL)] == ["2.00"] * 3 + ["4.00"]
    assert row_of["Centralised training"][1] == "\N{EN DASH}"
    gap = row_of["FedDC"][cells(tab, "#chosen")[0].index("Against FedAvg, points")]
    assert float(gap) == pytest.approx(100 * (0.02 - 0.01) / 4, abs=0.06)
    tab.find_element(By.CSS_SELECTOR, "#scores input[value=tasks]").click()
    assert "cora" not in cells(tab, "#chosen")[0]
    before, address = cells(tab, "#chosen"), tab.current_url
    visit(tab, site, "board-demo.html", address.partition("html")[2])
    assert cells(tab, "#chosen") == before
    assert tab.execute_script("return document.querySelectorAll('*').length") < NODES


def test_methods_are_compared(tab: Any, site: Path) -> None:
    visit(tab, site, "board-demo.html", "#tab=Compare&methods=FedDC%7CFedAvg%7CLocal+training")
    head, *rows = cells(tab, "#compared")
    assert head[:6] == ["Task", "FedDC", "FedAvg", "Local training", f"FedDC {MINUS} FedAvg, points",
                        f"FedDC {MINUS} Local training, points"]  # fmt: skip
    row_of = {row[0]: row for row in rows}
    assert row_of["cora"][1:6] == ["82.10", "80.10", "70.10", "+2.0", "+12.0"]
    assert row_of["Mean over datasets"][4] == "+7.0"
    assert len(tab.find_elements(By.CSS_SELECTOR, "#compared svg circle")) == len(rows)


def test_a_column_sorts_both_ways(tab: Any, site: Path) -> None:
    visit(tab, site, "dataset-cora.html")
    table = "[id='task:demo:cora']"
    (button,) = [one for one in tab.find_elements(By.CSS_SELECTOR, f"{table} thead button") if one.text == "Score, %"]
    orders = []
    for _ in range(2):
        button.click()
        orders.append([float(row[1].split(" ")[0]) for row in cells(tab, table)[1:]])
    assert orders[0] == sorted(orders[0], reverse=True) and orders[1] == sorted(orders[0])


def test_the_field_finds_a_page_and_a_table_is_saved(tab: Any, site: Path, tmp_path: Path) -> None:
    visit(tab, site, "index.html")
    tab.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    tab.find_element(By.XPATH, "//button[.='CSV']").click()
    WebDriverWait(tab, 30).until(lambda _: (tmp_path / "table.csv").exists())
    assert '"FedDC","70.' in (tmp_path / "table.csv").read_text(encoding="utf-8")
    tab.find_element(By.ID, "find").send_keys("feddc", Keys.ENTER)
    WebDriverWait(tab, 30).until(lambda _: tab.current_url.endswith("method-feddc.html"))


@pytest.mark.parametrize("page", KINDS)
def test_it_fits_a_phone_and_figures_are_drawn(tab: Any, site: Path, page: str) -> None:
    show(tab, 360, "dark")
    visit(tab, site, page)
    for button in tab.find_elements(By.CSS_SELECTOR, ".tabs button") or [None]:
        if button is not None:
            button.click()
        wide, window = tab.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert (wide <= window, window) == (True, 360)
    script = "for (const i of document.images) { i.loading = 'eager'; await i.decode(); } return document.images.length"
    done = f"const d = arguments[0]; (async () => {{ {script} }})().then(d, (e) => d(String(e)))"
    drawn = tab.execute_async_script(done)
    assert drawn == len(tab.find_elements(By.TAG_NAME, "img"))


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core from the development tools."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or not package.submodule_search_locations:
        pytest.skip("axe-core is not installed (pip install fglbench[dev])")
    return (Path(package.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


def violations(tab: Any, axe: str) -> list[str]:
    """Serious and critical violations of axe-core, with the first element of each."""
    tab.execute_script(axe)
    messages = tab.execute_async_script(
        "const done = arguments[0];"
        "axe.run(document, {resultTypes: ['violations']}).then((all) => done(all.violations"
        ".filter((each) => ['serious', 'critical'].includes(each.impact))"
        ".map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`)), (error) => done([String(error)]))"
    )
    return [str(each) for each in messages]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", KINDS)
def test_axe_finds_nothing_serious(chromium: Any, site: Path, axe: str, page: str, scheme: str) -> None:
    show(chromium, 1280, scheme)
    for state in ("", "#tab=Scores&metric=macro_f1", "#tab=Compare")[: 3 if "board" in page else 1]:
        visit(chromium, site, page, state)
        chromium.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
        assert violations(chromium, axe) == []
    if page == KINDS[0]:
        chromium.execute_script("document.body.append(document.createElement('input'))")  # a violation
        assert [each.split(":")[0] for each in violations(chromium, axe)] == ["label"]
