"""Write benchmark/suites/catalogue.json and cells.json from the classes and suite files:

    python tools/catalogue.py

Run it after changes of methods, datasets, partitions, splits, backbones or suites (`make catalogue`).
"""

from __future__ import annotations

from fglbench.benchmark.describe import catalogued
from fglbench.benchmark.suites.catalogue import CELLS, FILE
from fglbench.files import write_atomically

if __name__ == "__main__":
    for path, text in zip((FILE, CELLS), catalogued(), strict=True):
        changed = not path.exists() or path.read_text(encoding="utf-8") != text
        write_atomically(path, text.encode())
        print(f"{path.name}: {'changed' if changed else 'unchanged'}")
