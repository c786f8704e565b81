"""The documents: every command parses, cheap ones run, links have targets, generated pages are up to date.

test_documented_runs.py plans or runs the other commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

from fglbench.benchmark.cli import main
from fglbench.benchmark.cli.app import app
from fglbench.benchmark.store.schema import Row

from .columns_page import glossary

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/FINDINGS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BOARDS = sorted((ROOT / "results").glob("*/LEADERBOARD.md"))
TREE = typer.main.get_command(app)
CHEAP = ("list", "show", "doctor", "reproduce", "run")  # run and reproduce only if they list or plan


@cache
def blocks() -> list[tuple[str, str]]:
    """(page and line, command) of every line of an indented or fenced block that begins with the command's name.

    The text behind a comment sign or a gap explains the command.
    """
    found = []
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").replace("\\\n", "  ").splitlines(), 1):
            fenced ^= line.startswith("```")
            match = re.match(r"( {4,})?(?:[A-Z_]+=\S+ )*(fglbench [a-z-].*)", line)
            if match and (fenced or match[1]):
                command = re.split(r"\s#|(?<=\S)\s{4,}(?=[a-z])", match[2])[0].strip()
                found.append((f"{page.relative_to(ROOT)}:{number}", command))
    return found


def inline() -> Iterator[tuple[str, str]]:
    """(page and line, command) of every command in a line of text, which may leave words out."""
    for page in PAGES:
        for match in re.finditer(r"`fglbench ([a-z][^`]*)`", text := page.read_text(encoding="utf-8")):
            yield f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", " ".join(match[1].split())


def descend(words: list[str]):
    """The command that words begin with, and the rest."""
    command = TREE
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize(("place", "line"), blocks(), ids=lambda value: value if ":" in value else "")
def test_every_command_parses(place: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fglbench.benchmark.suites.plugins.load_plugins", tuple)
    monkeypatch.setattr("fglbench.datasets.own_data.announce", lambda *_: "own:some")  # there is no such folder
    command, words = descend(shlex.split(line)[1:])
    command.make_context(command.name, words)


@pytest.mark.parametrize(("place", "line"), list(inline()), ids=lambda value: value if ":" in value else "")
def test_every_command_in_a_sentence_has_known_options(place: str, line: str) -> None:
    command, words = descend([word for word in line.split() if word != "..."])
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
    options = {word.strip("[]").partition("=")[0] for word in words if re.match(r"\[?-[-a-z]", word)}
    assert options <= known


def test_the_pages_have_commands() -> None:
    assert len(blocks()) > 40 and len(list(inline())) > 30


@cache
def cheap() -> list[str]:
    commands = dict.fromkeys(line for _, line in blocks() if line.split()[1] in CHEAP and "--plugin" not in line)
    plans = [line for line in commands if line.split()[1] != "run" or "--dry-run" in line]
    return [line for line in plans if line.split()[1] != "reproduce" or "--dry-run" in line or len(line.split()) == 2]


@pytest.mark.parametrize("line", cheap())
def test_cheap_commands_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        assert main(shlex.split(line)[1:]) == 0


def test_the_page_of_columns_is_up_to_date() -> None:
    assert [name for name, info in Row.model_fields.items() if not info.description] == []
    assert (ROOT / "docs" / "columns.md").read_text(encoding="utf-8") == glossary()


@pytest.mark.parametrize("page", [*PAGES, *BOARDS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    places = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)|src=\"([^\":]+)\"", text)
    assert [name for pair in places for name in pair if name and not (page.parent / name).exists()] == []


def test_the_changelog_has_the_sections_of_keep_a_changelog_and_no_line_twice() -> None:
    """A merge that keeps both sides brings old lines back: take main's file and add the new line in its section."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = [part.splitlines() for part in re.split(r"^## ", text, flags=re.M)[1:]]
    for title, *lines in versions:
        assert re.fullmatch(r"\d+\.\d+\.\d+ - (unreleased|\d{4}-\d\d-\d\d)", title), title
        headings = [line for line in lines if line.startswith("#")]
        known = ["### Added", "### Changed", "### Deprecated", "### Removed", "### Fixed", "### Security"]
        assert headings == [name for name in known if name in headings], "the sections of a version, in this order"
        assert next(line for line in lines if line) in known, "a line outside the sections"
    starts = [line[:30] for line in text.splitlines() if line.startswith("- ")]
    assert [start for start in set(starts) if starts.count(start) > 1] == []
