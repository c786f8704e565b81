"""What the studies of a suite came to: a page and a figure, from the file of settings and the rows of the trials."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import optuna
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from ...files import write_atomically
from ...registry import UserError
from ...report.figures.style import COLOURS, FAINT, RC, legend_below, looks, packed, short
from ...report.text import ABSENT, markdown_table as sheet, md
from ..store import Store
from ..store.places import APART
from ..store.schema import Row
from ..suites.tuned import Tuned, read_tuned
from .session import Wanted, studies
from .study import DEFAULT, Study

PAGE, FIGURE = "README.md", "tuning.png"
FEW = 4  # trials, below which nothing is said of importance


class Finished(NamedTuple):
    """A study that is in the file of settings, and its rows."""

    study: Study
    chosen: Tuned
    rows: tuple[Row, ...]


def write(results: Path, suite: str, settings: Path) -> Path:
    """Write the page of a suite's studies and its figure; where the page is. UserError where no study is finished."""
    found = finished(Store(results / APART), suite, settings)
    if not found:
        raise UserError(f"no finished study of suite {suite!r} in {settings}; run `fglbench tune -s {suite}` first")
    folder = results / APART / found[0].study.suite
    try:
        write_atomically(folder / FIGURE, picture([own.study for own in found]))
        write_atomically(folder / PAGE, page(found).encode())
    except OSError as error:
        raise UserError(f"cannot write {str(folder)!r}: {error.strerror or error}; use --results DIR") from None
    return folder / PAGE


def finished(store: Store, suite: str, settings: Path) -> list[Finished]:
    """The studies that the file names and that today's ranges and the rows bear out, by dataset and method."""
    groups = defaultdict[tuple[int, tuple[int, ...], int | None], list[tuple[str, str]]](list)
    table = read_tuned(settings)
    for method, own in table.items():
        for dataset, one in own.items():
            groups[one.trials, tuple(one.seeds), one.rungs[-1] if one.rungs else None].append((method, dataset))
    standing = {row.key: row for row in store.rows(latest_only=True)}
    found = []
    for (trials, seeds, rounds), pairs in groups.items():
        methods, datasets = (tuple(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
        for study in chain.from_iterable(studies(Wanted(suite, methods, datasets, trials, seeds, rounds)).values()):
            chosen = table.get(study.cell.method.name, {}).get(study.cell.dataset.name)
            if chosen is not None and chosen.study == study.id and (rows := _told(study, standing)):
                found.append(Finished(study, chosen, rows))
    return sorted(found, key=lambda own: (own.study.cell.dataset.name, own.study.cell.method.name))


def _told(study: Study, standing: Mapping[str, Row]) -> tuple[Row, ...]:
    """Give a study its stored rows and return them; none if some are missing."""
    rows = list[Row]()
    while cells := study.cells():
        if any(cell.key not in standing for cell in cells):
            return ()
        rows += [standing[cell.key] for cell in cells]
        study.tell(standing)
    return tuple(rows)


def page(found: Sequence[Finished]) -> str:
    """The page, in markdown."""
    hours = sum(row.total_seconds or 0 for own in found for row in own.rows) / 3600
    failed = sum(row.status != "ok" for own in found for row in own.rows)
    cells = sum(len(own.rows) for own in found)
    parts = [
        f"# Tuning of suite {md(found[0].study.suite)}",
        "Written by `fglbench tune --report`; docs/tuning.md says how settings are chosen. Validation, in percent.",
        f"{len(found)} studies, {cells} runs ({failed} not ok), {hours:.1f} h in all.",
        "## Budget",
        _budget(found),
        "## What was chosen",
        "First trials: validation of all trials in the first rung. The suite's own setting and the chosen one ran for"
        " all rounds.",
        _settings(found),
        "## What mattered",
        "Share of the variance of validation in the first rung that a dimension explains (fANOVA, mean over studies): a"
        " hint only: the trials are few.",
        _importance(found),
        f"![Spread of trials and best so far]({FIGURE})",
    ]
    return "\n\n".join(parts) + "\n"


def _budget(found: Sequence[Finished]) -> str:
    """Trials, rounds granted and rounds run, method by method; they are to be equal."""
    lines = []
    for method in sorted({own.study.cell.method.name for own in found}):
        own = [one for one in found if one.study.cell.method.name == method]
        numbers = [len(own), sum(one.chosen.trials for one in own), sum(one.study.rounds for one in own)]
        lines.append([md(method), *map(str, [*numbers, sum(one.study.ran for one in own)])])
    return sheet(lines, ["method", "datasets", "trials", "rounds granted", "rounds run"], "lrrrr")


def _settings(found: Sequence[Finished]) -> str:
    lines = []
    for study, chosen, _ in found:
        first = [100 * values[0] for trial in study.trials if (values := study.values(trial))]
        spread = f"{min(first):.1f} / {statistics.median(first):.1f} / {max(first):.1f}"
        own = ABSENT if chosen.default is None else f"{100 * chosen.default:.2f}"
        gain = ABSENT if chosen.default is None else f"{100 * (chosen.val - chosen.default):+.2f}"
        what = "the suite's own" if chosen.trial == 0 else md(chosen)
        names = [md(study.cell.dataset.name), md(study.cell.method.name)]
        lines.append([*names, spread, own, f"{100 * chosen.val:.2f}", gain, str(chosen.trial), what])
    heads = ["dataset", "method", "first trials: least / median / most", "own", "chosen", "gain", "trial", "setting"]
    return sheet(lines, heads, "llrrrrrl")


def _importance(found: Sequence[Finished]) -> str:
    shares = defaultdict[str, list[float]](list)
    for study, _, _ in found:
        for name, share in importance(study).items():
            own = f" ({study.cell.method.name})" if name.startswith("method.") else ""
            shares[name + own].append(share)
    order = sorted(shares, key=lambda name: -statistics.mean(shares[name]))
    lines = [[md(name), f"{statistics.mean(shares[name]):.2f}", str(len(shares[name]))] for name in order]
    return sheet(lines, ["dimension", "importance", "studies"], "lrr")


def importance(study: Study) -> Mapping[str, float]:
    """Of each dimension for validation in the first rung, which all trials ran; empty where there is nothing to say."""
    trials = [(trial, values[0]) for trial in study.trials if (values := study.values(trial))]
    if len(trials) < FEW or len({value for _, value in trials}) == 1:
        return {}
    all_alike = optuna.create_study(direction="maximize")
    for trial, value in trials:
        own = optuna.trial.create_trial(params=trial.params, distributions=trial.distributions, value=value)
        all_alike.add_trial(own)
    return get_param_importances(all_alike, evaluator=FanovaImportanceEvaluator(seed=0))


def picture(found: Sequence[Study]) -> bytes:
    """A PNG with two panels a dataset: validation of all trials in the first rung, with the suite's own setting and the
    best for all rounds; and the best so far in the first rung, against its first trial."""
    datasets = list(dict.fromkeys(study.cell.dataset.name for study in found))
    methods = sorted({study.cell.method.name for study in found})
    look = looks(methods)
    with mpl.rc_context(RC):
        height = max(1.8, 0.9 + 0.2 * len(methods))
        figure = Figure(figsize=(8.5, height * len(datasets)), layout="constrained")
        for (left, right), dataset in zip(figure.subplots(len(datasets), 2, squeeze=False), datasets, strict=True):
            own = [study for study in found if study.cell.dataset.name == dataset]
            _spread(left, own)
            _growth(right, own, look)
            left.set_title(short(dataset))
        left.set_xlabel("validation")
        right.set_xlabel("trials")
        legend_below(figure, [Line2D([], [], label=short(name), **look[name]) for name in methods])
        return packed(figure)


def _spread(axes: Axes, found: Sequence[Study]) -> None:
    """Grey: first rung. Ring: the suite's own setting, dot: the best, for all rounds."""
    for place, study in enumerate(found):
        values = [own for trial in study.trials if (own := study.values(trial))]
        full = [own[-1] for own in values if len(own) == len(study.rungs)]
        default = study.values(study.trials[DEFAULT])
        axes.scatter([own[0] for own in values], [place] * len(values), s=14, color=FAINT)
        if len(default) == len(study.rungs):
            axes.scatter(default[-1], place, s=34, facecolors="none", edgecolors="black")
        axes.scatter(max(full, default=float("nan")), place, s=16, color=COLOURS[1])
    axes.set_yticks(range(len(found)), [short(study.cell.method.name) for study in found])
    axes.invert_yaxis()


def _growth(axes: Axes, found: Sequence[Study], look: dict[str, dict[str, Any]]) -> None:
    for study in found:
        first = [own[0] if (own := study.values(trial)) else 0.0 for trial in study.trials]
        best = [value - first[DEFAULT] for value in accumulate(first, max)]
        axes.step(range(1, len(best) + 1), best, where="post", **{**look[study.cell.method.name], "marker": ""})
    axes.set_ylabel("gain, best so far")
