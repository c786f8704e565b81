"""The word list of tools/check_words.py: no private expression in the project, and the check finds planted ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tools" / "check_words.py"


def check(*names: str) -> tuple[int, list[str]]:
    """Run the script; return its exit code and its lines."""
    done = subprocess.run([sys.executable, SCRIPT, *names], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="lists the files with git")
def test_no_private_expression_is_left() -> None:
    assert check() == (0, [])


def test_a_docstring_a_comment_and_a_message_are_read_but_no_name(tmp_path: Path) -> None:
    path = tmp_path / "planted.py"
    path.write_text(
        '"""One\n\nA row that is\ntold apart."""\ntold = 1  # one line a\n# run\n'
        'print(f"{told} of it cannot be had")\n"""`told` and told(x) and nobody_else"""\n'
    )
    code, lines = check(str(path))
    assert code == 1
    assert [line.removeprefix(f"{path}:").split(": ")[:2] for line in lines] == [
        ["4", '"told"'],
        ["5", '"one line a run"'],
        ["7", '"cannot be had"'],
    ]
    assert lines[2].endswith(": is unavailable")


def test_code_blocks_and_targets_of_links_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "planted.md"
    path.write_text("# Title\n\n    nobody\n\n```\nnobody\n```\n\nIt hangs\non `nobody` ([a](nobody.md)).\n")
    assert check(str(path)) == (1, [f'{path}:9: "hangs on": depends on'])
