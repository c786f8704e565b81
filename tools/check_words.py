"""Find private expressions in the prose of the project: Markdown, docstrings, comments and messages.

    python tools/check_words.py [FILE ...]      # all tracked files without arguments; exit code 1 if any is found

tools/words.txt has the expressions: a regular expression, a tab, the plain words to use instead.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# generated, history, examples of the check
LEFT_OUT = ("results/", "docs/columns.md", "CHANGELOG.md", "tests/test_words.py")


def expressions(path: Path = ROOT / "tools" / "words.txt") -> list[tuple[re.Pattern[str], str]]:
    """Return the pairs (expression, replacement) of the word list."""
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#")]
    pairs = [line.split("\t") for line in lines]
    return [
        (re.compile(rf"\b(?:{words})\b".replace(" ", r"[ \t]*[ \n][ \t]*"), re.IGNORECASE), plain)
        for words, plain in pairs
    ]


def markdown(text: str) -> str:
    """Blank code blocks, `code` and link targets; line numbers stay."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        lines.append("" if fence or fenced or line.startswith("    ") else line)
    return without_code("\n".join(lines))


def without_code(text: str) -> str:
    """Blank `code`, <tags>, link targets, and words with an underscore, a dot inside, or a bracket or "=" behind."""
    blank = r"`[^`\n]*`|<[^>\n]*>|\]\([^)\n]*\)|\w*_\w*|\w+(?:\.\w+)+|\w+(?=[(=])"
    return re.sub(blank, lambda match: re.sub(r"\S", "·", match[0]), text)


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each block of comments, and of each string of three words or more."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] > last + 1:
                yield first, "\n".join(block)
                block = []
            first, last = first if block else token.start[0], token.start[0]
            block.append(token.string.lstrip("#: "))
    if block:
        yield first, "\n".join(block)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 2:
            yield node.lineno, node.value


def faults(text: str, suffix: str, words: list[tuple[re.Pattern[str], str]]) -> list[tuple[int, str, str]]:
    """Return (line, expression, replacement) of each private expression; it may continue on the next line."""
    blocks = [(1, markdown(text))] if suffix == ".md" else [(line, without_code(block)) for line, block in python(text)]
    return sorted(
        (line + block[: match.start()].count("\n"), " ".join(match[0].split()), plain)
        for line, block in blocks
        for pattern, plain in words
        for match in pattern.finditer(block)
    )


def main(names: list[str]) -> int:
    """Print the private expressions of these files; return the exit code."""
    if not names:
        listed = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        names = [name for name in listed.stdout.decode().split("\n") if name and not name.startswith(LEFT_OUT)]
    words, number = expressions(), 0
    for name in names:
        for line, expression, plain in faults((ROOT / name).read_text(encoding="utf-8"), Path(name).suffix, words):
            print(f'{name}:{line}: "{expression}": {plain}')
            number += 1
    return int(number > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
