"""The main script of a program that calls the benchmark. Every worker process imports it."""

from __future__ import annotations

import sys
from pathlib import Path

UNGUARDED = 64  # exit code of a process that imports a script which calls `run` on import
GUARD = 'each worker imports the script, which calls `run` again; put the calls under `if __name__ == "__main__":`'


def importable_main() -> None:
    """Prevent workers from importing a script from standard input, which has no file."""
    main = sys.modules["__main__"]
    if not Path(getattr(main, "__file__", None) or __file__).exists():
        del main.__file__
