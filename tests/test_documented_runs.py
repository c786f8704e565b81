"""Every documented command is planned with `--dry-run`, or run as printed in the order of its page.

Outputs that a page quotes are compared with what is printed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

import fglbench
from fglbench.benchmark.cli import main
from fglbench.benchmark.runner import supervisor
from fglbench.benchmark.store import provenance

from .test_documents import blocks, cheap, inline

ROOT = Path(__file__).resolve().parents[1]
MIRROR = os.environ.get("FGLBENCH_MIRROR")
needs_cora = pytest.mark.skipif(not MIRROR, reason="Cora is in the folder that FGLBENCH_MIRROR names")
WALKED = (  # pages whose commands follow from each other; each has a test below
    *("README.md", "CONTRIBUTING.md", "docs/tutorial.md"),
    *("docs/own-data.md", "docs/plug-ins.md", "docs/extending.md"),
)
NUMBER = r"\d+(?:[.:]\d+)?"
SHORT = "--set training.rounds=2"
PLANNED = ("run", "reproduce", "tune")
READING = ("compare", "status")  # run on the stored rows
DATA = (
    "fglbench data list",
    "fglbench data info cora",
    "fglbench data partition cora --partition louvain --clients 10 --plot",
)
ELSEWHERE = {  # only parsed here: the reason or the test that runs it
    "data fetch": "downloads",
    "data describe": "minutes: tests/datasets/test_data_command.py",
    "profile": "needs a copy of another library: tests/benchmark/profile",
    "verify": "runs rows of the leaderboard again: tests/benchmark/submission/test_verify.py",
    "validate": "another person's submission: tests/benchmark/submission/test_validate.py",
    "adopt": "another person's submission: tests/benchmark/submission/test_trust.py",
    "report": "renews the pages of the checkout: tests/report/test_committed_pages.py",
}


def other_commands() -> list[str]:
    """The commands of the pages that are not walked and that test_documents.py does not run."""
    lines = [line for place, line in blocks() if not place.startswith(WALKED)]
    return [line for line in dict.fromkeys(lines) if line not in cheap()]


def planned() -> list[str]:
    """Those to plan, and the whole ones in sentences of all pages."""
    lines = [line for line in other_commands() if line.split()[1] in PLANNED]
    whole = [f"fglbench {line}" for _, line in inline() if re.match(rf"({'|'.join(PLANNED)}) -[ms] [a-z]", line)]
    return [line for line in dict.fromkeys([*lines, *whole]) if not re.search("my-|--record|--report|cuda", line)]


def output_of(words: list[str]) -> str:
    """The output of a command that runs in this process and must succeed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(words)
    assert code == 0, f"{shlex.join(words)}\n{out.getvalue()[-2000:]}"
    return out.getvalue()


def walk(page: str, *more: tuple[str, str]) -> dict[str, str]:
    """Run the commands of a page in its order, in the current folder; (expression, text) are replaced in them first."""
    printed = {}
    for place, line in blocks():
        if place.startswith(f"{page}:"):
            typed = line
            for old, new in more:
                typed = re.sub(old, new, typed)
            if typed:
                printed[line] = output_of(shlex.split(typed)[1:])
    return printed


def quoted(page: str) -> list[str]:
    """The indented blocks of a page that are no commands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks_of_page = [
        textwrap.dedent(block).strip() for block in re.findall(r"(?:^    .*\n|\n(?=    ))+", text, flags=re.M)
    ]
    return [block for block in blocks_of_page if block and not block.startswith(("fglbench", "pip"))]


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which commands run their rows in this process and find the real data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.warn", lambda *_, **__: None)
    return tmp_path


def test_every_command_is_planned_run_or_has_a_reason() -> None:
    left = [line for line in other_commands() if line.split()[1] not in (*PLANNED, *READING)]
    left = [line for line in left if line not in DATA]
    words = {" ".join(line.split()[1 : 3 if line.split()[1] == "data" else 2]) for line in left}
    assert words == set(ELSEWHERE)
    assert len(planned()) > 50


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=[pytest.mark.slow] * bool(number % 3)) for number, line in enumerate(planned())],
    ids=lambda line: line[9:],
)
def test_a_command_is_planned(line: str, workdir: Path) -> None:
    words = shlex.split(line)[1:]
    assert output_of(words if "--dry-run" in words else [*words, "--dry-run"])


@pytest.mark.parametrize(
    "line", [line for line in other_commands() if line.split()[1] in READING], ids=lambda line: line[9:]
)
def test_a_command_reads_the_stored_rows(line: str, workdir: Path) -> None:
    (workdir / "results").symlink_to(ROOT / "results")
    assert output_of(shlex.split(line)[1:])


@needs_cora
@pytest.mark.parametrize("line", DATA, ids=lambda line: line[9:])
def test_a_command_reads_data(line: str, workdir: Path) -> None:
    assert line in other_commands() and output_of(shlex.split(line)[1:])


@needs_cora
@pytest.mark.usefixtures("in_process")
def test_the_tutorial(workdir: Path) -> None:
    printed = " ".join(" ".join(walk("docs/tutorial.md").values()).split())
    outputs = [" ".join(output.split()) for output in quoted("docs/tutorial.md") if "import" not in output]
    assert len(outputs) == 2
    words = re.sub(NUMBER, "#", printed)
    for output in outputs:
        place = words.find(re.sub(NUMBER, "#", output))
        assert place >= 0, output
        before, numbers = words.count("#", 0, place), re.findall(NUMBER, output)
        actual = re.findall(NUMBER, printed)[before : before + len(numbers)]
        pairs = [(float(one), float(other)) for one, other in zip(actual, numbers, strict=True) if ":" not in one]
        assert all(one == pytest.approx(other, abs=0.3, rel=0.02) for one, other in pairs), output  # another processor


@needs_cora
@pytest.mark.usefixtures("registries", "in_process")
def test_the_readme(workdir: Path) -> None:
    (workdir / "FOLDER").mkdir()
    nodes, edges = quoted("docs/own-data.md")[:2]
    (workdir / "FOLDER" / "nodes.csv").write_text(nodes)
    (workdir / "FOLDER" / "edges.csv").write_text(edges)
    (workdir / "results").symlink_to(ROOT / "results")
    few = (r"(fglbench run --quick) (--results)", r"\1 -m fedavg,fedprox,local -d cora \2")
    short = (r"(fglbench run .*)", rf"\1 {SHORT}")
    plain = (r"fglbench new method my-method --torch.*", "")
    walk("README.md", few, short, plain, (r"(fglbench (?:run --all|reproduce|recommend|compete) .*)", r"\1 --dry-run"))
    rows = fglbench.load_results("runs/first")
    assert len(rows) == 6 and set(rows["status"]) == {"ok"}


@pytest.mark.usefixtures("registries", "in_process")
def test_own_data(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fglbench.datasets.own_data._folders", {})
    (workdir / "villages").mkdir()
    nodes, edges = quoted("docs/own-data.md")[:2]
    (workdir / "villages" / "nodes.csv").write_text(nodes)
    (workdir / "villages" / "edges.csv").write_text(edges)
    monkeypatch.setenv("FGLBENCH_OWN", "villages")
    walk("docs/own-data.md")


@needs_cora
@pytest.mark.usefixtures("registries", "in_process")
def test_plug_ins(workdir: Path) -> None:
    """From a template to rows; the package of the page is tested in tests/benchmark/test_plugins.py."""
    walk("docs/plug-ins.md", (r"fglbench (check shores|run -m slow-avg).*", ""), (r"(fglbench run .*)", rf"\1 {SHORT}"))
    assert set(fglbench.load_results("runs")["partition"]) == {"my-cut"}


@needs_cora
@pytest.mark.usefixtures("registries", "in_process")
def test_extending(workdir: Path) -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (workdir / "parts.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.S)))
    walk("docs/extending.md", (r"(fglbench run .*)", rf"\1 {SHORT}"))
    (row,) = fglbench.load_results("runs").to_dict("records")
    assert (row["dataset"], row["partition"], row["split"], row["backbone"]) == (
        "ladder", "by-degree", "few", "smooth-mlp",
    )  # fmt: skip
    assert row["score"] > 0.5


@needs_cora
@pytest.mark.usefixtures("registries", "in_process")
def test_contributing(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a method outside of the package: no --into, and --plugin, as the page says."""
    # Rows of a checkout with changes would be refused.
    monkeypatch.setattr(supervisor, "stamped", committed)
    for command in ("init -q", "config user.name x", "config user.email x@example.org"):
        subprocess.run(["git", *command.split()], check=True)
    plugin = " --plugin my_method.py"
    output_of(["new", "method", "my-method"])
    for words in (["add", "my_method.py"], ["commit", "-q", "-m", "Add my-method"]):
        subprocess.run(["git", *words], check=True)
    walk(
        "CONTRIBUTING.md",
        (r"fglbench (new method|validate results|report).*", ""),
        (r"(fglbench compete .*)", r"\1 --dry-run"),
        (r"(fglbench (?:check|run|submit) .*)", rf"\1{plugin}"),
    )
    assert (workdir / "results" / "submissions" / "my-method" / "quick" / "my-method.csv").is_file()


def committed(threads: int, submitter: str, device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]]:
    columns, about = provenance.stamped(threads, submitter, device)
    return {**columns, "git_sha": "a" * 40, "git_dirty": False}, about
