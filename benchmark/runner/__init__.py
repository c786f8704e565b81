"""Run cells: the plan, the workers, and a row for every cell, also if it fails."""
