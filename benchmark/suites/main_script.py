"""The script that calls the benchmark, which every process started here imports."""

from __future__ import annotations

import sys
from pathlib import Path

UNGUARDED = 64  # exit code of a process that imports a script which calls `run` on import
GUARD = 'each worker imports the script, which calls `run` again; put the calls under `if __name__ == "__main__":`'


def importable_main() -> None:
    """Let no other process try to import a script on standard input, which has no file."""
    main = sys.modules["__main__"]
    if not Path(getattr(main, "__file__", None) or __file__).exists():
        del main.__file__
