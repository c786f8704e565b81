"""Run the cells of a plan in worker processes, and store a row for every one of them, whatever becomes of it.

The parent alone decides and writes rows. A worker that crashes, hangs or eats the memory costs its cell a row that says
so, and is replaced. Several runs may share a results folder: a cell is claimed before it runs, and looked up again once
claimed, so it is not run twice. Interrupt a run as you like: what was finished is stored, the rest runs next time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from ...registry import UserError
from ..store import Store
from ..store.provenance import code_version, environment, git_state, now
from ..store.schema import Row
from .plan import Item, Missing, Plan
from .process import WorkerProcess
from .worker import BROKEN, DONE, READY, ROUND, Options

TICK = 0.2  # seconds between looks at clocks and memory
STILLBORN = 3  # workers that may be killed from outside while they start, before the run gives up
ELSEWHERE = 2.0  # seconds between looks at cells that another run has claimed


class Observer:
    """Told what happens; the command line's progress display is one. `ended` follows `begun`, come what may."""

    def begun(self, items: Sequence[Item]) -> None: ...
    def started(self, item: Item) -> None: ...
    def round(self, item: Item, number: int, figures: dict[str, Any]) -> None: ...
    def finished(self, item: Item, row: Row, *, elsewhere: bool) -> None: ...
    def ended(self) -> None: ...


@dataclass
class Summary:
    """What came of a run: the rows by suite and cell key."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def counts(self) -> Counter[str]:
        return Counter(row.status for row in self.rows.values())

    @property
    def ok(self) -> bool:
        return all(row.status in ("ok", "skipped") for row in self.rows.values())


def run_plan(plan: Plan, store: Store, options: Options | None = None, observer: Observer | None = None) -> Summary:
    """Run everything that a plan has to do.

    Raises UserError when the results folder cannot be written (before anything runs, where that can be known) or when
    workers cannot start at all; KeyboardInterrupt passes after the workers are stopped. Rows stored so far stay.
    """
    todo = plan.todo
    if not todo:
        return Summary()
    observer = observer or Observer()
    run = _Run(todo, store, options or Options(), observer)
    try:
        observer.begun(todo)
        return run.loop()
    finally:
        run.stop()
        observer.ended()


def record_missing(missing: Iterable[Missing], store: Store, options: Options | None = None) -> None:
    """A row for every cell without data, status "skipped", so that the leaderboard says why it has no score.

    Like any skipped cell it is not run again before `--rerun skipped`. Raises UserError for a folder that cannot be
    written. The row has no path of this machine in it, as rows are published.
    """
    items = [item for one in missing for item in one.items]
    stamp = _stamp(items, store, options or Options())
    for item in items:
        error = f"the data of {item.cell.dataset.name} could not be had: not in the cache or a mirror, no host reached"
        store.append(item.cell.row(item.suite, status="skipped", error=error, started=now(), **stamp))


def _stamp(items: Sequence[Item], store: Store, options: Options) -> dict[str, Any]:
    """What all rows of a run have in common; prepares the results folder for them."""
    digest, about = environment(options.threads)
    store.prepare(item.suite for item in items)
    store.write_environment(digest, about)
    sha, dirty = git_state()
    made = {"environment": digest, "git_sha": sha, "git_dirty": dirty, "code": code_version()}
    return {**made, "submitter": options.submitter}


class _Run:
    def __init__(self, todo: Sequence[Item], store: Store, options: Options, observer: Observer) -> None:
        self.store, self.options, self.observer = store, options, observer
        self.queue, self.claimed_elsewhere = list(todo), list[Item]()
        self.summary = Summary()
        self.next_look = 0.0
        self.spawned = self.stillborn = 0
        self.stamp = _stamp(todo, store, options)
        self.workers = [self._spawn() for _ in range(options.workers(len(todo)))]

    def loop(self) -> Summary:
        while self.queue or self.claimed_elsewhere or any(worker.task for worker in self.workers):
            for worker in self.workers:
                if worker.ready and worker.task is None:
                    self._assign(worker)
            wait([end for worker in self.workers for end in (worker.pipe, worker.process.sentinel)], TICK)
            for index, worker in enumerate(self.workers):
                self._hear(worker)
                if self._ended(worker):
                    self.workers[index] = self._spawn()
        return self.summary

    def stop(self) -> None:
        for worker in self.workers:
            if worker.task is not None:
                worker.task.claim.release()
            worker.kill()

    def _spawn(self) -> WorkerProcess:
        self.spawned += 1
        return WorkerProcess(self.store, self.spawned, self.options, self.stamp)

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _assign(self, worker: WorkerProcess) -> None:
        """Give an idle worker the next cell that nobody else runs or has run."""
        if not self.queue and self.claimed_elsewhere and time.monotonic() >= self.next_look:
            self.queue, self.claimed_elsewhere = self.claimed_elsewhere, []
            self.next_look = time.monotonic() + ELSEWHERE
        while self.queue:
            item = self.queue.pop(self._best(worker))
            claim = self.store.claim(item.suite, item.cell.key)
            if claim is None:
                self.claimed_elsewhere.append(item)
                continue
            row = self.store.find(item.suite, item.cell.method.name, item.cell.key)
            if row is not None and row != item.row:
                self.store.unclaim(claim)
                self._record(item, row, elsewhere=True)
                continue
            worker.give(item, claim)
            self.observer.started(item)
            return

    def _best(self, worker: WorkerProcess) -> int:
        """Where in the queue the best cell for a worker is: one whose data it has, else one whose data nobody has."""
        keys = [item.cell.federation_key for item in self.queue]
        if worker.last_federation in keys:
            return keys.index(worker.last_federation)
        others = {other.last_federation for other in self.workers}
        return next((index for index, key in enumerate(keys) if key not in others), 0)

    # -- hearing -----------------------------------------------------------------------------------------------------

    def _hear(self, worker: WorkerProcess) -> None:
        with suppress(EOFError, OSError):  # a dying worker: `_ended` sees to it
            while worker.pipe.poll():
                self._heard(worker, *worker.pipe.recv())

    def _heard(self, worker: WorkerProcess, word: str, *values: Any) -> None:
        if word == READY:
            worker.ready = True
        elif word == BROKEN:
            raise UserError(values[0])
        elif worker.task is not None and word == ROUND:
            worker.task.round = values[0]
            self.observer.round(worker.task.item, *values)
        elif worker.task is not None and word == DONE:
            self._finish(worker, values[0])

    def _ended(self, worker: WorkerProcess) -> bool:
        """Whether a worker is dead, or had to be killed; its cell then has its row."""
        ending = self._overdue(worker) if worker.process.is_alive() else self._died(worker)
        if ending is None:
            return False
        worker.kill()
        if worker.task is not None:
            item, (status, reason) = worker.task.item, ending
            values = {"status": status, "error": reason, "started": worker.task.started, **self.stamp}
            self._finish(worker, item.cell.row(item.suite, **values))
        return True

    def _died(self, worker: WorkerProcess) -> tuple[str, str]:
        """(status, reason) of a worker that is dead."""
        self._hear(worker)  # its last message may have come after the last look
        status, reason = worker.ending()
        self.stillborn += not worker.ready
        if not worker.ready and (self.stillborn > STILLBORN or (worker.process.exitcode or 0) >= 0):
            raise UserError(f"a worker process cannot start: {reason}")
        return status, reason

    def _overdue(self, worker: WorkerProcess) -> tuple[str, str] | None:
        """(status, reason) of a worker that is to be killed, or None."""
        task, timeout, limit = worker.task, self.options.timeout, self.options.memory_limit
        if task is None:
            return None
        if timeout and task.seconds > timeout:
            rounds = task.item.cell.training.rounds
            return "timeout", f"no result after {timeout:g} s (in round {task.round + 1} of {rounds})"
        if limit is not None and worker.memory() > limit * 2**30:
            return "oom", f"the worker took more than the --memory-limit of {limit:g} GiB"
        return None

    def _finish(self, worker: WorkerProcess, row: Row) -> None:
        task, worker.task = worker.task, None
        assert task is not None
        self.store.append(row)
        self.store.unclaim(task.claim)
        self._record(task.item, row, elsewhere=False)

    def _record(self, item: Item, row: Row, *, elsewhere: bool) -> None:
        self.summary.rows[item.suite, item.cell.key] = row
        self.observer.finished(item, row, elsewhere=elsewhere)
