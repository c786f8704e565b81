"""Forged submissions: figures that no run leaves behind, costs that no run has, names that look like others.

Each is what a forger might change in an honest submission; each must make it invalid or be pointed out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.attachments import environment_text
from fglbench.benchmark.store.columnfile import CurveTable, arrays_of
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import copies
from fglbench.benchmark.submission.inbox import Findings, Line
from fglbench.benchmark.submission.sides import Side
from fglbench.metrics import METRICS

ROWS = "tiny/fedprox.csv"
EMPTY = "0" * 40


def first(folder: Path) -> Row:
    return Store(folder).rows("tiny")[0]


def row(**values: Any) -> Callable[[Path, SimpleNamespace], None]:
    """Columns of the first row, changed."""
    return lambda f, t: t.edit(f / ROWS, 2, **values)


def rows(**values: Any) -> Callable[[Path, SimpleNamespace], None]:
    """Columns of all rows, changed."""
    return lambda f, t: t.edit(f / ROWS, None, **values)


def curves(change: Callable[[dict[str, Any]], object]) -> Callable[[Path, SimpleNamespace], None]:
    """The side file of the first row, changed."""
    return lambda f, t: t.edit_curves(Store(f).history_file("tiny", first(f).key), change)


def both(name: str, value: Any) -> Callable[[Path, SimpleNamespace], None]:
    """A figure of the first row and of its curve, at the best round or the last."""

    def change(f: Path, t: SimpleNamespace) -> None:
        rule, best = METRICS[name], first(f).best_round or 1
        t.edit(f / ROWS, 2, **{name: value})
        curves(lambda c: c["history"][rule.curve].__setitem__(-1 if rule.at == "last" else best - 1, value))(f, t)

    return change


def shorter(f: Path, t: SimpleNamespace) -> None:
    """The first row, cut to its first three rounds, all figures in agreement."""

    def cut(c: dict[str, Any]) -> None:
        c["history"] = {name: values[:3] for name, values in c["history"].items()}

    curves(cut)(f, t)
    old, found = first(f), Store(f).history("tiny", first(f).key)["history"]
    best = found["val"].index(max(found["val"])) + 1
    values = {name: found[m.curve][-1 if m.at == "last" else best - 1] for name, m in METRICS.items() if m.curve}
    t.edit(f / ROWS, 2, **{k: v for k, v in values.items() if hasattr(old, k)}, train_seconds=found["seconds"][-1])


def another_best(f: Path, t: SimpleNamespace) -> None:
    """The best round is the one with the best test score."""
    found, old = Store(f).history("tiny", first(f).key)["history"], first(f)
    best = next(n for n in range(1, 9) if n != old.best_round)
    values = {name: found[m.curve][best - 1] for name, m in METRICS.items() if m.curve and m.at == "best"}
    t.edit(f / ROWS, 2, **values)


def metadata(**values: Any) -> Callable[[Path, SimpleNamespace], None]:
    return lambda f, t: (f / "submission.yaml").write_text(json.dumps({**t.meta, "method": "fedprox", **values}))


def environment(change: Callable[[dict[str, Any]], object]) -> Callable[[Path, SimpleNamespace], None]:
    """The machine, changed, under the name of its content."""
    import hashlib

    from fglbench.benchmark.store.provenance import canonical

    def apply(f: Path, t: SimpleNamespace) -> None:
        (old,) = (f / "environments").iterdir()
        about = json.loads(old.read_text())
        change(about)
        digest = hashlib.sha256(canonical(about).encode()).hexdigest()[:12]
        old.unlink()
        (f / "environments" / f"{digest}.json").write_bytes(environment_text(about))
        t.edit(f / ROWS, None, environment=digest)

    return apply


def other_seed_failed(f: Path, t: SimpleNamespace) -> None:
    lost = first(f)
    Store(f).history_file("tiny", lost.key).unlink()
    figures = dict.fromkeys([*METRICS, "peak_memory_mb"], "")
    t.edit(f / ROWS, 2, status="failed", error="CUDA is unhappy", **figures)


def copied(f: Path, t: SimpleNamespace) -> None:
    """Figures and curves of the first seed under the second."""
    one, other = [row for row in Store(f).rows("tiny") if Store(f).rows("tiny")[0].dataset_params == row.dataset_params]
    content = Store(f).history_file("tiny", one.key).read_bytes()
    Store(f).history_file("tiny", other.key).write_bytes(content)
    number = 2 + [row.key for row in Store(f).rows("tiny")].index(other.key)
    t.edit(f / ROWS, number, **{name: "" if (v := getattr(one, name)) is None else v for name in METRICS})


def of_another_method(f: Path, t: SimpleNamespace) -> None:
    """Figures and curves of a standing row of fedavg."""
    mine, base = first(f), Store(f.parent / "results")
    one = next(r for r in base.rows("tiny") if r.partition_hash == mine.partition_hash and r.method == "fedavg")
    Store(f).history_file("tiny", mine.key).write_bytes(base.history_file("tiny", one.key).read_bytes())
    t.edit(f / ROWS, 2, **{name: "" if (v := getattr(one, name)) is None else v for name in METRICS})


FORGED: dict[str, tuple[Callable[[Path, SimpleNamespace], object], str]] = {
    # the score and what it is made of
    "a score that is not its clients' mean": (both("score", 0.987), "the mean of its clients is"),
    "a score that is not its matrix column": (both("score", 0.987), "but global_on_local, which it is"),
    "a validation value that is not its clients' mean": (both("val", 0.987), "val is 0.987 in the row; the mean"),
    "a matrix column alone": (row(global_on_local="0.99"), "global_on_local, which it is, 0.99"),
    "another model's column": (row(personal_on_local="0.99"), "personal_on_local is 0.99 in the row; the mean"),
    "a weighted score beyond all clients": (row(score_weighted="1.0"), "beyond what any client has"),
    "no weighted score": (row(score_weighted=""), "status ok without score_weighted"),
    "a perfect macro-F1": (row(macro_f1="1.0"), "macro_f1 is 1.0; the clients' scores leave"),
    "a macro-F1 far above the score": (row(macro_f1="0.97"), "macro-F1 0.97|macro_f1 is 0.97"),
    "no macro-F1": (row(macro_f1=""), "status ok without macro_f1"),
    "a whole graph that is far easier": (row(global_on_global="1.0"), "far above global_on_local"),
    "a whole graph without a local one": (row(global_on_local=""), "global_on_local"),
    "a column of the matrix left out": (row(global_on_global=""), "one of global_on_local and global_on_global alone"),
    "personal models left out": (row(personal_on_local=""), "personal_on_local"),
    "clients that all are right": (
        curves(lambda c: c["per_client"].update(score=[1.0, 1.0, 1.0])),
        "the mean of its clients is 1.0",
    ),
    "clients beyond 1": (curves(lambda c: c["per_client"].update(val=[3.0, -1.0, 0.0])), "of a client leaves"),
    "no clients": (curves(lambda c: c.pop("per_client")), "has no figures of the clients"),
    "no client's validation": (curves(lambda c: c["per_client"].pop("val")), "has no figures of the clients"),
    "a client too many": (curves(lambda c: c["per_client"]["score"].append(0.5)), "of 4 clients; there are 3"),
    "clients of nothing": (curves(lambda c: c["per_client"].update(luck=[1, 1, 1])), "none of the row's: 'luck'"),
    "no label counts": (curves(lambda c: c.pop("label_counts")), "has no label_counts"),
    "label counts of fewer clients": (curves(lambda c: c["label_counts"].pop()), "label_counts are not those of 3"),
    "other label counts": (curves(lambda c: c["label_counts"][0].reverse()), "other label counts than others"),
    "label counts that are no counts": (
        curves(lambda c: c["label_counts"][0].__setitem__(0, -1)),
        "label_counts are no counts",
    ),
    "label counts of nothing": (
        curves(lambda c: c["label_counts"][0].__setitem__(0, None)),
        "label_counts are no counts",
    ),
    "label counts of different classes": (curves(lambda c: c["label_counts"][1].append(1)), "are not those of 3 cl"),
    "another metric": (row(score_metric="accuracy, best model, test"), "score_metric 'accuracy, best model, test'"),
    "a metric of other data": (row(score_metric="accuracy, global model, whole graph"), "score_metric 'acc"),
    # rounds
    "the round with the best test score": (another_best, "but by val_accuracy it is"),
    "fewer rounds": (shorter, "3 rounds; the training has 8"),
    "rounds counted otherwise": (curves(lambda c: c["history"]["round"].reverse()), "in its curves|counted 1, 2, 3"),
    "a best round of none": (row(best_round="9"), "best round 9 of 8"),
    "a validation curve made flat": (
        curves(lambda c: c["history"].update(val=[max(c["history"]["val"])] * 8)),
        "by val_accuracy it is 1|of its curves",
    ),
    "curves beyond 1": (curves(lambda c: c["history"]["score"].__setitem__(-1, 5.0)), r"score leaves \[0, 1\]"),
    "curves of 1e308": (curves(lambda c: c["history"]["score"].__setitem__(-1, 1e308)), "something else than lists"),
    "no validation at all": (
        curves(lambda c: c["history"].update(val=[None] * 8)),
        "it is 8|in its curves",
    ),
    # costs
    "bytes that fall": (
        curves(lambda c: c["history"]["upload_bytes"].__setitem__(0, 10**9)),
        "upload_bytes goes down",
    ),
    "fewer bytes": (both("upload_bytes", 1), "upload_bytes goes down|more bytes to the best round"),
    "bytes below nothing": (both("download_bytes", -5), "out of range|goes down"),
    "seconds below nothing": (row(train_seconds="-1.0"), "out of range"),
    "no time at all": (row(train_seconds="0.0", total_seconds="0.0"), "0 seconds for 8 rounds"),
    "a billionth of a second": (row(train_seconds="1e-09", total_seconds="1e-09"), "1e-09 seconds for 8 rounds"),
    "more training than time": (row(total_seconds="0.001"), "seconds in all of 0.001"),
    "a hundred years": (row(total_seconds="3000000000.0"), "3e.09 seconds, more than"),
    "half the time": (lambda f, t: row(train_seconds=first(f).train_seconds / 2)(f, t), "train_seconds is"),
    "time that runs backwards": (curves(lambda c: c["history"]["seconds"].reverse()), "seconds goes down"),
    "no memory": (row(peak_memory_mb="0.0"), "peak memory of 0.0"),
    "all the memory there is": (row(peak_memory_mb="1000000000000.0"), "peak memory of 1000000000000.0"),
    # the budget
    "a larger budget": (row(budget_steps="800"), "budget_steps is 800; 8 rounds of 1 epochs"),
    "no budget": (row(budget_steps=""), "budget_steps is None"),
    "more steps on a parameter than steps": (row(model_steps="900"), "900 steps on one parameter"),
    "training that its method does not ask for": (
        lambda f, t: row(effective_training=first(f).training)(f, t),
        "effective_training is",
    ),
    # copies
    "curves of another seed": (copied, "has to the digit the times of fedprox"),
    "curves of another method": (of_another_method, "has to the digit the times of fedavg"),
    # seeds that are bought
    "a bad seed that failed": (other_seed_failed, "failed although other seeds have a score"),
    # whose, when, with what
    "no commit": (row(git_sha=EMPTY), r"column 'git_sha': '0{40}' is not of the form"),
    "a date before the code": (row(started="0001-01-01T00:00:00Z"), "started before there was|is no date"),
    "a date of 2019": (row(started="2019-01-01T00:00:00Z"), "started before there was an fglbench"),
    "no machine": (environment(lambda about: about.clear()), "not the environment"),
    "a machine without a processor": (environment(lambda about: about.pop("cpu")), "not the environment"),
    "packages without torch": (environment(lambda about: about["packages"].pop("torch")), "not the environment"),
    "a submitter who is the maintainers": (rows(submitter="fglbench"), "submitted as 'fglbench', who are the maint"),
    "a submitter who looks like them": (rows(submitter="fglb\u0435nch"), "holds letters that look like others"),
    "a submitter of Cyrillic letters that look Latin": (rows(submitter="fg\u04c0bench"), "look"),
    "a capital I for an l": (rows(submitter="fgIbench"), "'fgIbench' looks like 'fglbench'"),
    "a submitter with another space": (rows(submitter="fgl bench."), "looks like 'fglbench'"),
    # metadata
    "an address with a Cyrillic letter": (metadata(code="https://g\u0456thub.com/x/y"), "in ASCII letters"),
    "an address that ends in another": (metadata(code="https://a.bc/x)[y](https://evil.ex"), "must be an https"),
    "an address with a user name": (metadata(code="https://github.com@evil.example/x"), "must"),
    "a paper at an address that looks like another": (metadata(paper="https://\u0430rxiv.org/abs/1"), "must"),
    "any licence": (metadata(licence="as you like"), "must be an SPDX expression"),
    "a contact in two alphabets": (metadata(contact="m\u0430rk@example.org"), "must mix no alphabets"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_submission_is_refused_or_pointed_out(
    what: str, submission: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    forge, pattern = FORGED[what]
    forge(submission, tools)
    code = main(["validate", "packed"])
    *problems, _ = capsys.readouterr().out.splitlines()
    assert any(re.search(pattern, line) for line in problems), problems
    assert code == (0 if all(line.startswith("warning: ") for line in problems) else 1)


def line(row: Row) -> Line:
    return Line("tiny/x.csv", 2, f"x/{row.key}", b"", row)


def told(stored: dict[Line, dict[str, Any]], fresh: set[Line], claimed: set[Line]) -> list[str]:
    findings = Findings()
    sides = {line: Side(CurveTable(arrays_of({line.row.key: own})), 0) for line, own in stored.items()}
    copies.check(sides, fresh, claimed, findings)
    return [str(finding) for finding in findings.found]


def test_no_two_runs_have_the_same_curves(submission: Path) -> None:
    one, other, *_ = map(line, Store(submission).rows("tiny"))
    course = [0.1 * n for n in range(copies.TELLING)]

    def side(seconds: float, scores: list[float]) -> dict[str, Any]:
        return {"history": {"seconds": [seconds, seconds + 1], "val": scores, "score": scores}}

    same = {one: side(1.0, course), other: side(2.0, course)}
    (found,) = told(same, {other}, {other})
    assert found.startswith(f"{other.place}: has the curves of fedprox on csbm, seed")
    assert told(same, {one}, {one})[0].startswith(one.place)  # whichever is new
    assert told(same, set(), set()) == []  # what stands is not judged again
    assert told({one: side(1.0, course[:-1]), other: side(2.0, course[:-1])}, {one}, {one}) == []  # by chance
    (found,) = told({one: side(1.0, course), other: side(1.0, course[::-1])}, {other}, {other})
    assert "has to the digit the times of" in found
    clustered = Line(other.file, 3, other.place, b"", other.row.model_copy(update={"val": None}))
    (found,) = told({one: side(1.0, course), clustered: side(2.0, course)}, {clustered}, {clustered})
    assert found.startswith("warning: ")
