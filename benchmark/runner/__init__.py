"""Running it: what of a plan is to do, the workers that do it, and the row of every cell, whatever becomes of it."""
