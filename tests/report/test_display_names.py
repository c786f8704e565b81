"""The shortest text that tells settings apart."""

from __future__ import annotations

import pandas as pd

from fglbench.report.display_names import distinguish
from fglbench.report.text import ABSENT


def test_parameters_tell_apart_those_that_they_belong_to() -> None:
    """By hand: Louvain's own parameters are one and the same, so that its name says enough; alpha is named for two."""
    variants = pd.DataFrame(
        [
            ("louvain", '{"delta":20}', 5), ("louvain", '{"delta":20}', 10), ("metis", "{}", 10),
            ("label-dirichlet", '{"alpha":0.5}', 10), ("label-dirichlet", '{"alpha":1}', 10),
        ],
        columns=["partition", "partition_params", "clients"],
    )  # fmt: skip
    assert distinguish(variants) == [
        "louvain, 5 clients", "louvain, 10 clients", "metis, 10 clients", "label-dirichlet, alpha=0.5, 10 clients",
        "label-dirichlet, alpha=1, 10 clients",
    ]  # fmt: skip
    assert distinguish(variants[2:4]) == ["metis", "label-dirichlet"]
    assert distinguish(variants[:1]) == [""]


def test_a_parameter_that_one_lacks_is_told_of_both() -> None:
    variants = pd.DataFrame({"method_params": ['{"mu":1}', '{"mu":2,"x":3}', '{"mu":2}']})
    assert distinguish(variants) == [f"mu=1, x={ABSENT}", "mu=2, x=3", f"mu=2, x={ABSENT}"]
