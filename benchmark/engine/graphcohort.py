"""Moved: see `graphs/graphcohort.py`. Here until methods/ imports the engine's face."""

from .graphs.graphcohort import GraphCohort as GraphCohort
