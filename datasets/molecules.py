"""Molecules from SMILES: MoleculeNet's sets (Wu et al., Chemical Science 9, 2018), by RDKit and OGB's featuriser.

A graph is a molecule without its hydrogens. A node is an atom with OGB's nine features, each one-hot over its values in
the set. An edge is a bond with OGB's three features (type, stereo, conjugated), one-hot. Molecules that RDKit cannot
read are left out. RDKit is an extra: pip install "fglbench[molecules]".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..registry import UserError
from .content import Content, read_csv, undirected
from .federation import Goal
from .sources import Files
from .spec import GraphSetSpec, NumbersSpec


def read_molecules(
    files: Files, columns: Sequence[str] | None = None, labels: bool = False, smiles: str = "smiles"
) -> Content:
    """Return content from a table with a column of SMILES. columns: the predicted ones; None: all columns of numbers.

    labels: the only column contains classes. Otherwise the columns become `target`, float32 (graphs, T), nan for a
    missing value. `scaffold` is the Bemis-Murcko scaffold of each molecule, numbered by first occurrence.
    """
    chem, to_graph, scaffold_of = _rdkit()
    table = read_csv(next(iter(files.values())), skipinitialspace=True)
    names = list(table.select_dtypes("number").columns) if columns is None else list(columns)
    missing = [name for name in (smiles, *names) if name not in table.columns]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}")
    places, nodes, edges, bonds, scaffolds, total = [], [], [], [], [], 0
    for place, text in enumerate(table[smiles].astype(str).str.strip()):
        molecule = chem.MolFromSmiles(text)
        if molecule is None or not molecule.GetNumAtoms():
            continue
        graph = to_graph(text)
        edges.append(graph["edge_index"].T + total)
        bonds.append(graph["edge_feat"])
        nodes.append(graph["node_feat"])
        total += graph["num_nodes"]
        scaffolds.append(scaffold_of(mol=molecule, includeChirality=False))
        places.append(place)
    sizes = [len(atoms) for atoms in nodes]
    values = table[names].to_numpy(dtype=np.float64)[places]
    ends, kinds = np.concatenate(edges), np.concatenate(bonds)
    once = ends[:, 0] < ends[:, 1]  # the files have each bond in both directions
    order = np.lexsort((ends[once, 1], ends[once, 0]))
    number = {key: i for i, key in enumerate(dict.fromkeys(scaffolds))}
    content: Content = {
        "edge_label": kinds[once][order].astype(np.uint8),
        "graph": np.repeat(np.arange(len(sizes)), sizes),
        "edges": undirected(ends, total),
        "node_label": np.concatenate(nodes).astype(np.int64),
        "scaffold": np.array([number[key] for key in scaffolds], dtype=np.int64),
        "label": values[:, 0].astype(np.int64) if labels else np.zeros(len(sizes), dtype=np.int64),
    }
    return content if labels else content | {"target": values.astype(np.float32)}


def _rdkit() -> tuple[Any, Callable[[str], Any], Callable[..., str]]:
    try:
        from ogb.utils import smiles2graph
        from rdkit import Chem, rdBase
        from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles
    except ImportError:
        raise UserError('molecules are read by RDKit: pip install "fglbench[molecules]"') from None
    rdBase.DisableLog("rdApp.*")  # a line for each molecule that is left out
    return Chem, smiles2graph, MurckoScaffoldSmiles


read_esol = partial(read_molecules, columns=["measured log solubility in mols per litre"])
read_freesolv = partial(read_molecules, columns=["expt"])
read_lipophilicity = partial(read_molecules, columns=["exp"])
read_bbbp = partial(read_molecules, columns=["p_np"], labels=True)
read_bace = partial(read_molecules, columns=["Class"], labels=True)
read_hiv = partial(read_molecules, columns=["HIV_active"], labels=True)


class MoleculeRegressionSpec(NumbersSpec, GraphSetSpec):
    """Molecules with measured numbers."""

    goal: ClassVar[Goal] = "graph-regression"


class MoleculeLabelsSpec(GraphSetSpec):
    """Molecules with several binary labels, some unknown."""

    goal: ClassVar[Goal] = "graph-labels"
