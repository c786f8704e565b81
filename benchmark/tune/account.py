"""The report of a suite's studies: a page and a figure, from the file of settings and the rows of the trials."""

from __future__ import annotations

import math
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
from optuna.trial import create_trial

from ...files import write_atomically, writing
from ...registry import UserError
from ...report.figures.style import COLOURS, FAINT, RC, legend_below, looks, packed, short
from ...report.text import ABSENT, markdown_table as sheet, md, score_text
from ..store import Store
from ..store.row_file import APART
from ..store.schema import Row
from ..suites.tuned import Tuned, read_tuned
from .session import DEFAULT, Study, Wanted, studies

PAGE, FIGURE = "README.md", "tuning.png"
FEW = 4  # trials below which importance is not estimated


class Finished(NamedTuple):
    """A study in the file of settings, and its rows."""

    study: Study
    chosen: Tuned
    rows: tuple[Row, ...]


def write(results: Path, suite: str, settings: Path) -> Path:
    """Write the page and the figure of a suite's studies; return the path of the page. UserError if no study is
    finished."""
    finished_studies = finished(Store(results / APART), suite, settings)
    if not finished_studies:
        raise UserError(f"no finished study of suite {suite!r} in {settings}; run `fglbench tune -s {suite}` first")
    folder = results / APART / finished_studies[0].study.suite
    with writing(folder, "; use --results DIR"):
        write_atomically(folder / FIGURE, picture([entry.study for entry in finished_studies]))
        write_atomically(folder / PAGE, page(finished_studies).encode())
    return folder / PAGE


def finished(store: Store, suite: str, settings: Path) -> list[Finished]:
    """The studies of the file of settings that are unchanged and have all rows, by dataset and method."""
    groups = defaultdict[tuple[int, tuple[int, ...], int | None], list[tuple[str, str]]](list)
    table = read_tuned(settings)
    for method, by_dataset in table.items():
        for dataset, tuned in by_dataset.items():
            groups[tuned.trials, tuple(tuned.seeds), tuned.rungs[-1] if tuned.rungs else None].append((method, dataset))
    stored = {row.key: row for row in store.rows(latest_only=True)}
    entries = []
    for (trials, seeds, rounds), pairs in groups.items():
        methods, datasets = (tuple(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
        for study in chain.from_iterable(studies(Wanted(suite, methods, datasets, trials, seeds, rounds)).values()):
            chosen = table.get(study.cell.method.name, {}).get(study.cell.dataset.name)
            if chosen is not None and chosen.study == study.id and (rows := _replayed(study, stored)):
                entries.append(Finished(study, chosen, rows))
    return sorted(entries, key=lambda entry: (entry.study.cell.dataset.name, entry.study.cell.method.name))


def _replayed(study: Study, stored: Mapping[str, Row]) -> tuple[Row, ...]:
    rows = list[Row]()
    while cells := study.cells():
        if any(cell.key not in stored for cell in cells):
            return ()
        rows += [stored[cell.key] for cell in cells]
        study.tell(stored)
    return tuple(rows)


def page(entries: Sequence[Finished]) -> str:
    """The page, in markdown."""
    hours = sum(row.total_seconds or 0 for entry in entries for row in entry.rows) / 3600
    failed = sum(row.status != "ok" for entry in entries for row in entry.rows)
    cells = sum(len(entry.rows) for entry in entries)
    parts = [
        f"# Tuning of suite {md(entries[0].study.suite)}",
        "Written by `fglbench tune --report`; docs/tuning.md says how settings are chosen. Validation, in percent;"
        " errors in their unit.",
        f"Studies: {len(entries)}, of {cells} runs ({failed} not ok), {hours:.1f} h in all.",
        "## Budget",
        _budget(entries),
        "## What was chosen",
        "First trials: validation of all trials in the first rung. The suite's own setting and the chosen one ran for"
        " all rounds.",
        _settings(entries),
        "## What mattered",
        "Share of the variance of validation in the first rung that a dimension explains (fANOVA, mean over studies): a"
        " hint only: the trials are few.",
        _importance(entries),
        f"![Spread of trials and best so far]({FIGURE})",
    ]
    return "\n\n".join(parts) + "\n"


def _budget(entries: Sequence[Finished]) -> str:
    lines = []
    for method in sorted({entry.study.cell.method.name for entry in entries}):
        of_method = [entry for entry in entries if entry.study.cell.method.name == method]
        figures = [(1, entry.chosen.trials, entry.study.rounds, entry.study.ran) for entry in of_method]
        lines.append([md(method), *(str(sum(column)) for column in zip(*figures, strict=True))])
    return sheet(lines, ["method", "datasets", "trials", "rounds granted", "rounds run"], "lrrrr")


def _settings(entries: Sequence[Finished]) -> str:
    lines = []
    for study, chosen, _ in entries:
        first = [trial.values[0] for trial in study.trials if trial.values]
        spread = " / ".join(score_text(of(first), 1) for of in (min, statistics.median, max))
        default, gain = ABSENT, ABSENT
        if chosen.default is not None:
            scale = 100 if chosen.val >= 0 else 1  # percent, but errors are in their unit
            default, gain = score_text(chosen.default), f"{scale * (chosen.val - chosen.default):+.2f}"
        what = "the suite's own" if chosen.trial == 0 else md(chosen)
        names = [md(study.cell.dataset.name), md(study.cell.method.name)]
        lines.append([*names, spread, default, score_text(chosen.val), gain, str(chosen.trial), what])
    heads = ["dataset", "method", "first trials: least / median / most", "own", "chosen", "gain", "trial", "setting"]
    return sheet(lines, heads, "llrrrrrl")


def _importance(entries: Sequence[Finished]) -> str:
    shares = defaultdict[str, list[float]](list)
    for study, _, _ in entries:
        for name, share in importance(study).items():
            suffix = f" ({study.cell.method.name})" if name.startswith("method.") else ""
            shares[name + suffix].append(share)
    order = sorted(shares, key=lambda name: -statistics.mean(shares[name]))
    lines = [[md(name), f"{statistics.mean(shares[name]):.2f}", str(len(shares[name]))] for name in order]
    return sheet(lines, ["dimension", "importance", "studies"], "lrr")


def importance(study: Study) -> Mapping[str, float]:
    """The importance of each dimension for validation in the first rung (fANOVA); empty with few trials or equal
    values."""
    trials = [trial for trial in study.for_optuna() if trial.intermediate_values]
    values = [trial.intermediate_values[study.rungs[0]] for trial in trials]
    if len(trials) < FEW or len(set(values)) == 1:
        return {}
    first_rung = optuna.create_study(direction="maximize")
    for trial, value in zip(trials, values, strict=True):
        first_rung.add_trial(create_trial(params=trial.params, distributions=trial.distributions, value=value))
    return get_param_importances(first_rung, evaluator=FanovaImportanceEvaluator(seed=0))


def picture(studies: Sequence[Study]) -> bytes:
    """A PNG with two panels per dataset, of five datasets and more side by side: validation of all trials in the first
    rung, with the suite's own setting and the best for all rounds; and the best so far in the first rung, minus the
    first trial."""
    datasets = list(dict.fromkeys(study.cell.dataset.name for study in studies))
    methods = sorted({study.cell.method.name for study in studies})
    look = looks(methods)
    with mpl.rc_context(RC):
        height = max(1.8, 0.9 + 0.2 * len(methods))
        across = min(math.ceil(len(datasets) / 4), 3)
        down = math.ceil(len(datasets) / across)
        figure = Figure(figsize=(8.5 * across, height * down), layout="constrained")
        pairs = figure.subplots(down, 2 * across, squeeze=False).reshape(-1, 2)
        for (left, right), dataset in zip(pairs, datasets, strict=False):
            of_dataset = [study for study in studies if study.cell.dataset.name == dataset]
            _spread(left, of_dataset)
            _growth(right, of_dataset, look)
            left.set_title(short(dataset))
        for left, right in pairs[len(datasets) - across : len(datasets)]:
            left.set_xlabel("validation")
            right.set_xlabel("trials")
        for spare in pairs[len(datasets) :].flat:
            spare.set_visible(False)
        legend_below(figure, [Line2D([], [], label=short(name), **look[name]) for name in methods])
        return packed(figure)


def _spread(axes: Axes, studies: Sequence[Study]) -> None:
    """Grey: first rung. Ring: the suite's own setting; dot: the best; both for all rounds."""
    for place, study in enumerate(studies):
        values = [trial.values for trial in study.trials if trial.values]
        full = [scores[-1] for scores in values if len(scores) == len(study.rungs)]
        default = study.trials[DEFAULT].values
        axes.scatter([scores[0] for scores in values], [place] * len(values), s=14, color=FAINT)
        if len(default) == len(study.rungs):
            axes.scatter(default[-1], place, s=34, facecolors="none", edgecolors="black")
        axes.scatter(max(full, default=float("nan")), place, s=16, color=COLOURS[1])
    axes.set_yticks(range(len(studies)), [short(study.cell.method.name) for study in studies])
    axes.invert_yaxis()


def _growth(axes: Axes, studies: Sequence[Study], look: dict[str, dict[str, Any]]) -> None:
    for study in studies:
        values = [trial.values[:1] for trial in study.trials]
        worst = min(chain.from_iterable(values), default=0.0)  # of a failed trial
        first = [score[0] if score else worst for score in values]
        best = [value - first[DEFAULT] for value in accumulate(first, max)]
        axes.step(range(1, len(best) + 1), best, where="post", **{**look[study.cell.method.name], "marker": ""})
    axes.set_ylabel("gain, best so far")
