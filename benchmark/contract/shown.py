"""What checks have shown of a method, and what no check can show, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

SHOWN = {
    "sees_no_hidden_label": "what it trains and predicts is the same whatever labels stand where it may not look",
    "knows_no_random_label": "labels that nobody can know it guesses no better than chance",
    "stays_local": "what a client uploads depends on that client's data and on messages alone",
    "reaches_only_its_own": "nothing that a client half is handed leads to another client's data",
    "learns_nothing_from_scoring": "being scored leaves no trace in what it trains",
    "counts_its_steps": "every gradient that its clients take is a counted optimiser step",
    "repeats_itself": "the seed decides every number, whatever ran before",
}
NOT_SHOWN = (
    "Not shown: a method runs in the process that scores it. Code that behaves itself here, and elsewhere reads the "
    "dataset's files, walks the garbage collector or the stack, keeps something in a module between cells, or changes "
    "the engine, can cheat; training without gradients is not counted. This is a contract and no proof: read the code "
    "of a method that you do not trust."
)


def in_words(verdicts: Mapping[str, str], real: str) -> Iterator[str]:
    """Lines for verdicts by check; real: the real dataset that they were also run on, or why there was none."""
    shown = [text for name, text in SHOWN.items() if verdicts.get(name) == "ok"]
    if shown:
        yield f"Shown on small generated data{real}:"
        yield from (f"- {text}" for text in shown)
    yield NOT_SHOWN
