"""Cells, suites of cells, and the selection of cells by a user."""
