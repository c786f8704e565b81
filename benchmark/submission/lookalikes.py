"""Names that look like others: letters of another alphabet, a capital I for an l, an address that is not what it seems.

Whole words of any alphabet are names like any other. Refused are words whose alphabets are mixed so that they look like
something else (Unicode TS 39, by `confusable_homoglyphs`), and two names that look alike and are not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from confusable_homoglyphs import confusables

ADDRESS = re.compile(r"https?://\S*", re.IGNORECASE)
PLAIN_ADDRESS = re.compile(r"https?://([A-Za-z0-9-]+\.)+[A-Za-z]{2,}(:[0-9]+)?(/[!-~]*)?")
MARKUP = re.compile(r"[][<>\"'`\\()|{}]")  # of an address: they end it, or begin another, in Markdown and HTML
SHAPES = str.maketrans({"0": "o", "1": "l", "I": "l", "|": "l"})
BLANK = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]")  # printable, and nothing is to be seen
FILLING = re.compile(r"[\s._-]+")


def deceives(text: str) -> bool:
    """Whether a word of the text mixes alphabets so that it looks like another word, or holds letters unseen."""
    if BLANK.search(text):
        return True
    return any(confusables.is_dangerous(word, preferred_aliases=["latin"]) for word in re.findall(r"\w+", text))


def plain_address(text: str) -> bool:
    """Whether a text is an address that shows where it leads: ASCII, no user name, no markup."""
    return bool(PLAIN_ADDRESS.fullmatch(text)) and not MARKUP.search(text)


def plain_addresses(text: str) -> bool:
    """Whether all addresses in a text lead where they seem to."""
    return all(PLAIN_ADDRESS.match(found) and found.isascii() for found in ADDRESS.findall(text))


def shape(name: str) -> str:
    """What a name looks like; names of one shape are not to be told apart."""
    composed = unicodedata.normalize("NFKC", name)
    text = "".join(char for char in composed if unicodedata.category(char) not in ("Mn", "Me"))  # what no letter has
    latin = "".join(char if char.isascii() else _latin(char) for char in text)
    return FILLING.sub("", latin.translate(SHAPES)).casefold()


def _latin(char: str) -> str:
    """The ASCII character that looks like this one, if there is one."""
    alike = confusables.is_confusable(char, greedy=True) or [{"homoglyphs": []}]
    found = sorted(each["c"] for each in alike[0]["homoglyphs"] if len(each["c"]) == 1 and each["c"].isascii())
    return found[0] if found else char


def twin(name: str, known: Iterable[str]) -> str | None:
    """One of the known names that this one looks like and is not."""
    return next((other for other in sorted(set(known)) if other != name and shape(other) == shape(name)), None)
