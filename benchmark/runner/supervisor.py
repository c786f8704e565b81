"""Run the cells of a plan and store a row for each, also if it fails: by workers, or in this process (for methods of a
notebook and for debuggers).

Only the supervisor writes rows, and the side files that workers send. If a worker crashes, hangs or uses too much
memory, its cell gets a failed row and the worker is replaced; if it was killed from outside or its node was lost, the
cell is tried once more. Several runs may share a results folder: a cell is claimed before it runs, and its row is
looked up after the claim, so it is not run twice. An interrupted run keeps finished rows; the rest runs next time.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from filelock import FileLock

from ...datasets import DATASETS
from ...datasets.own_data import known_folders, words_of
from ...registry import OWN, UserError
from ..store import Store
from ..store.provenance import now, stamped
from ..store.schema import Row
from ..store.side_files import Parcel
from ..suites.cell import NAMING
from .backend import Assignment, Backend, Needs, Observer, Slot, Summary, needs, prepare
from .execute import FederationCache, execute
from .plan import Item, Missing, Plan
from .process import DONE, READY, ROUND, Options, Processes
from .system import Ending, afterwards, opened

TICK = 0.2  # seconds between checks of time and memory
STILLBORN = 3  # workers of a slot that may be killed from outside while they start, before the run stops
NAMES = ("key", "suite", "task", *NAMING, "seed", "reference")  # columns of a row that its cell determines
ELSEWHERE = 2.0  # seconds between checks of cells that another run has claimed


def open_backend(options: Options, store: Store) -> Backend[Any]:
    """The backend of checked options (`Options.check`). UserError if it is unavailable."""
    if options.backend == "ray":
        try:
            from .ray_backend import Cluster
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            raise UserError("--backend ray needs Ray: pip install 'fglbench[ray]'") from None
        return Cluster(options)
    return Processes(options, store)


def run_plan(plan: Plan, store: Store, options: Options | None = None, observer: Observer | None = None) -> Summary:
    """Run the cells of a plan that are to do.

    Raises UserError if the results folder cannot be written (before anything runs, if possible) or workers cannot
    start; KeyboardInterrupt after the workers are stopped. Rows that are already stored stay.
    """
    todo = plan.todo
    if not todo:
        return Summary()
    observer = observer or Observer()
    options = options or Options()
    options = replace(options, folders=known_folders() if options.backend == "processes" else ())
    run = _Run(todo, store, options, observer)
    try:
        observer.begun(todo)
        summary = run.loop()
        store.check_there(summary.rows.values())
        return summary
    finally:
        with afterwards():
            run.stop()
            observer.ended()


def record_missing(missing: Iterable[Missing], store: Store, options: Options | None = None) -> None:
    """Store a row with status "skipped" for every cell without data, so that the leaderboard has the reason.

    As any skipped cell, it runs again only with `--rerun skipped`. Raises UserError if the folder cannot be written.
    Rows are published, so the error has no path of this machine.
    """
    items = [item for one in missing for item in one.items]
    options = options or Options()
    prepare(items, store, options)
    stamp, about = stamped(options.threads, options.submitter)
    store.write_environment(stamp["environment"], about)
    for item in items:
        error = f"the data of {item.cell.dataset.name} could not be had: not in the cache or a mirror, no host reached"
        store.append_row(item.cell.row(item.suite, status="skipped", error=error, started=now(), **stamp))


def _id(item: Item) -> tuple[str, str]:
    return item.suite, item.cell.key


class _Run:
    """A run of `run_plan`: the queue of cells, the slots of workers, and the summary."""

    def __init__(self, todo: Sequence[Item], store: Store, options: Options, observer: Observer) -> None:
        self.store, self.options, self.observer = store, options, observer
        self.queue, self.claimed_elsewhere = list(todo), list[Item]()
        self.needs = {_id(item): needs(item.cell) for item in todo}
        self.summary = Summary()
        self.next_check = 0.0  # of cells that another run has claimed
        self.tried = set[tuple[str, str]]()  # cells whose worker was killed from outside
        self.slots: list[Slot] = []
        prepare(todo, store, options)
        self.backend = open_backend(options, store)

    def loop(self) -> Summary:
        for _ in range(self.backend.size(len(self.queue))):
            self.slots.append(self._new_slot())
        while self.queue or self.claimed_elsewhere or any(slot.task for slot in self.slots):
            for slot in self.slots:
                if slot.ready and slot.task is None:
                    self._assign(slot)
            self._replace_spent_workers()
            self.backend.wait([slot.worker for slot in self.slots], TICK)
            for index, slot in enumerate(self.slots):
                self._read_messages(slot)
                if self._end_if_over(slot):
                    self.slots[index] = self._new_slot(slot.stillborn)
        return self.summary

    def _new_slot(self, stillborn: int = 0) -> Slot:
        """A slot with a new worker of the kind that the next cell needs."""
        waiting = [*self.queue, *self.claimed_elsewhere]
        plugins = bool(waiting) and self._needs(waiting[0]).plugins
        return Slot(self.backend.start(plugins), plugins, stillborn=stillborn)

    def _replace_spent_workers(self) -> None:
        for slot in [slot for slot in self.slots if slot.spent and slot.task is None]:
            slot.worker.kill()
            self.slots.remove(slot)
            if self.queue or self.claimed_elsewhere:
                self.slots.append(self._new_slot())

    def _needs(self, item: Item) -> Needs:
        return self.needs[_id(item)]

    def stop(self) -> None:
        for slot in self.slots:
            if slot.task is not None:
                slot.task.claim.release()
            slot.worker.kill()
        self.backend.close()

    # -- assignment --------------------------------------------------------------------------------------------------

    def _assign(self, slot: Slot) -> None:
        """Give an idle worker the next cell that no other run has claimed or run. If it may run none, it is spent."""
        if not self.queue and self.claimed_elsewhere and time.monotonic() >= self.next_check:
            self.queue, self.claimed_elsewhere = self.claimed_elsewhere, []
            self.next_check = time.monotonic() + ELSEWHERE
        while self.queue and not slot.spent:
            suited = [index for index, item in enumerate(self.queue) if slot.suits(self._needs(item))] or [0]
            keys = {index: self.queue[index].cell.federation_key for index in suited}
            others = {other.last_federation for other in self.slots}
            same = next((index for index, key in keys.items() if key == slot.last_federation), None)
            best = (
                next((index for index, key in keys.items() if key not in others), suited[0]) if same is None else same
            )
            if not slot.suits(self._needs(self.queue[best])):
                slot.spent = True
                return
            item = self.queue.pop(best)
            claim = self._claim(item)
            if claim is None:
                continue
            slot.task, slot.last_federation = Assignment(item, claim, now(), time.monotonic()), item.cell.federation_key
            slot.used = True
            slot.worker.give(item.suite, item.cell)
            self.observer.started(item)
            return

    def _claim(self, item: Item) -> FileLock | None:
        """Claim a cell that leaves the queue; None if another run has claimed or run it."""
        claim = self.store.claim(item.suite, item.cell.key)
        if claim is None:
            self.claimed_elsewhere.append(item)
            return None
        row = self.store.find(item.suite, item.cell.method.name, item.cell.key)
        if row is not None and row != item.row:
            self.store.unclaim(claim)
            self._record(item, row, elsewhere=True)
            return None
        return claim

    # -- results -----------------------------------------------------------------------------------------------------

    def _read_messages(self, slot: Slot) -> None:
        for word, *values in slot.worker.poll():
            if word == READY:
                slot.stamp, about, _ = values
                self.store.write_environment(slot.stamp["environment"], about)
                slot.ready = True
            elif slot.task is not None and word == ROUND:
                slot.task.round, figures = values
                self.observer.round(slot.task.item, slot.task.round, figures)
            elif slot.task is not None and word == DONE:
                row, side_files, thread_left = values
                slot.spent = thread_left or self._needs(slot.task.item).alone
                self._finish(slot, *self._checked(slot, slot.task, row, side_files))

    def _checked(self, slot: Slot, task: Assignment, sent: Any, files: Any) -> tuple[Row, dict[str, bytes]]:
        """The row and the side files that a worker sent, or a failed row if they are not of its cell: a worker may run
        code from outside."""
        item = task.item
        expected = item.cell.row(item.suite, status="failed", started=task.started, **slot.stamp)
        try:
            row = Row.model_validate(sent)
            content = {place: base64.b64decode(data) for place, data in files.items()}
            wrong = [name for name in NAMES if getattr(row, name) != getattr(expected, name)]
            wrong += sorted(content.keys() - Parcel.places(item.suite, item.cell.key))
        except (ValueError, TypeError, AttributeError) as error:
            wrong = [f"of another form ({type(error).__name__})"]
        if wrong:
            problem = f"the worker sent what is not of its cell: {', '.join(wrong):.300}"
            return expected.model_copy(update={"error": problem}), {}
        return row, content

    def _end_if_over(self, slot: Slot) -> bool:
        """Whether a worker has ended or exceeded a limit; it is then killed, and its cell has a row or is queued."""
        ending = slot.worker.ended()
        if ending is None:
            ending = self._exceeded_limit(slot)
        else:
            self._read_messages(slot)  # there may be a last one
            if not slot.ready:
                slot.stillborn += 1
                if not ending.outside or slot.stillborn > STILLBORN:
                    raise UserError(f"a worker process cannot start: {ending.reason}")
        if ending is None:
            return False
        requeued = ending.outside and self._requeue(slot)
        slot.worker.kill()
        if slot.task is not None and not requeued:
            item, values = slot.task.item, {"status": ending.status, "error": ending.reason}
            row = item.cell.row(item.suite, **values, started=slot.task.started, **slot.stamp)
            self._finish(slot, row, {})
        return True

    def _requeue(self, slot: Slot) -> bool:
        """Put the cell of a worker that was killed from outside back into the queue, once. Return whether it was."""
        if slot.task is None or _id(slot.task.item) in self.tried:
            return False
        self.tried.add(_id(slot.task.item))
        self.store.unclaim(slot.task.claim)
        self.queue.insert(0, slot.task.item)
        return True

    def _exceeded_limit(self, slot: Slot) -> Ending | None:
        task, timeout, limit = slot.task, self.options.timeout, self.options.memory_limit
        if task is None:
            return None
        if timeout and task.seconds > timeout:
            rounds = task.item.cell.training.rounds
            return Ending(
                "timeout", f"no result after {timeout:g} s (in round {min(task.round + 1, rounds)} of {rounds})"
            )
        if limit is not None and slot.worker.memory() > limit * 2**30:
            return Ending("oom", f"the worker took more than the --memory-limit of {limit:g} GiB")
        return None

    def _finish(self, slot: Slot, row: Row, side_files: dict[str, bytes]) -> None:
        task, slot.task = slot.task, None
        assert task is not None
        with afterwards():
            self.store.append_row(row, side_files)
            self.store.unclaim(task.claim)
            self._record(task.item, row, elsewhere=False)

    def _record(self, item: Item, row: Row, *, elsewhere: bool) -> None:
        self.summary.rows[_id(item)] = row
        self.observer.finished(item, row, elsewhere=elsewhere)


def keep_sites(plan: Plan, store: Store) -> None:
    """Store the client names of each of the user's own datasets in the plan."""
    datasets = {i.cell.dataset.name: i.cell.dataset for i in plan.todo if i.cell.dataset.name.startswith(OWN)}
    for name, choice in datasets.items():
        if names := words_of(name)[1]:
            spec = choice.build(DATASETS)
            store.write_sites(spec.digest(spec.content()[0]), names)


def run_in_process(plan: Plan, store: Store, options: Options, observer: Observer | None = None) -> Summary:
    """Run the cells of a plan that are to do, in this process. Raises the errors of `run_plan`, and UserError for
    another backend."""
    if options.backend != "processes":
        raise UserError(f"in_process runs everything here, and backend is {options.backend!r}: leave one of them out")
    summary, observer, todo = Summary(), observer or Observer(), plan.todo
    if not todo:
        return summary
    prepare(todo, store, options)
    device, federations = opened(options.device), FederationCache()
    columns, about = stamped(options.threads, options.submitter, str(device))
    store.write_environment(columns["environment"], about)
    observer.begun(todo)
    try:
        for item in todo:
            claim = store.claim(item.suite, item.cell.key)
            if claim is None:
                continue  # another run has it
            observer.started(item)
            parcel, on_round = Parcel(), partial(observer.round, item)
            try:
                kept = options.embeddings, device, options.models
                row = execute(item.cell, item.suite, parcel, federations, columns, on_round, *kept)
                with afterwards():
                    store.append_row(row, parcel.contents)
            finally:
                store.unclaim(claim)
            summary.rows[item.suite, item.cell.key] = row
            observer.finished(item, row, elsewhere=False)
    finally:
        observer.ended()
    return summary
