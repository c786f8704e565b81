"""The names of a user's own clients, kept beside the rows: the report names them."""

from __future__ import annotations

from ...datasets import DATASETS
from ...datasets.own_data import OWN, words_of
from ..store import Store
from .plan import Plan


def keep_sites(plan: Plan, store: Store) -> None:
    """Store the names of the clients of each dataset of the user's own that the plan has to run."""
    own = {i.cell.dataset.name: i.cell.dataset for i in plan.todo if i.cell.dataset.name.startswith(OWN)}
    for name, choice in own.items():
        if names := words_of(name)[1]:
            store.write_sites(choice.build(DATASETS).load().fingerprint, names)
