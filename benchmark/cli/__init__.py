"""The command line. `main` is the console script; the commands are in the modules beside this one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, Optional

__all__ = ["main"]

INTERRUPTED = 130
EXTREME = (OSError, OverflowError, MemoryError, RecursionError)  # what a user gave is too large, too deep, no such file


def main(arguments: Optional[Sequence[str]] = None) -> int:  # noqa: UP045 - must run on any Python, to say so
    """Run a command; returns the exit code: 0 all well, 1 some cells failed, 2 a mistake of the user's, 130 Ctrl-C."""
    if not (3, 10) <= sys.version_info[:2] < (3, 12):
        version = ".".join(map(str, sys.version_info[:2]))
        return _complain(f"Python {version} cannot work: DGL 1.1.3 has builds for Python 3.10 and 3.11 (`make run`)")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch|dgl|outdated|ogb")
        warnings.showwarning = lambda message, *_: print(f"fglbench: warning: {message}", file=sys.stderr)
        return _command(arguments)


def _command(arguments: Sequence[str] | None) -> int:
    import typer

    from ...registry import UserError

    usage_error: Any = typer.BadParameter.__bases__[0]  # its place depends on typer's version, its relation does not
    try:
        from .app import app

        code = app(args=arguments, standalone_mode=False, prog_name="fglbench")
    except UserError as error:
        return _complain(str(error))
    except usage_error as error:
        return _complain(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        sys.stderr.close()
        return 0
    except Exception as error:
        from ..store.provenance import check_packages

        try:
            check_packages()
        except UserError as unfit:
            return _complain(str(unfit))
        if not isinstance(error, EXTREME):
            raise
        name = f" ({error.filename!r:.200})" if isinstance(error, OSError) and error.filename else ""
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return _complain(f"this cannot be done: {reason:.200}{name}; give a smaller number or another path")
    if code == INTERRUPTED:  # typer may have caught the interrupt and made it this code
        return _complain("stopped; the same command goes on from here", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _complain(line: str, code: int = 2) -> int:
    print(f"fglbench: {' '.join(line.split())}", file=sys.stderr)
    return code
