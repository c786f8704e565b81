"""The command line. `main` is the console script; the commands are in the other modules of this package."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Optional

from ...foundations import PYTHONS, python_fits

__all__ = ["main"]

INTERRUPTED = 130
APART = "fglbench.benchmark.suites.apart"  # imported by commands with plug-ins
WORD, LINE = 300, 3000  # limits of an error message in characters
STOPPED = "stopped; the same command continues from here"
EXTREME = (OSError, OverflowError, MemoryError, RecursionError)  # the input is too large, or a file is missing


def main(arguments: Optional[Sequence[str]] = None) -> int:  # noqa: UP045 - must run on any Python, to say so
    """Run a command. Returns the exit code: 0 success, 1 some cells failed, 2 an error of the user, 130 Ctrl-C."""
    if not python_fits():
        version = ".".join(map(str, sys.version_info[:2]))
        return _complain(f"Python {version} cannot work: DGL has no build for it; use {PYTHONS} (`make run` finds one)")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch|dgl|outdated|ogb")
        warnings.filterwarnings("ignore", category=SyntaxWarning)  # from packages that Python compiles at first use
        warnings.showwarning = lambda message, *_: print(f"fglbench: warning: {message}", file=sys.stderr)
        codecs.register_error("plain", _plain)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="plain")
        try:
            return _command(arguments)
        except KeyboardInterrupt:  # also while the modules of the command are imported
            return _complain(STOPPED, INTERRUPTED)
        finally:
            if (apart := sys.modules.get(APART)) is not None:
                apart.end()


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the terminal's encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join({"±": "+-", "→": "->"}.get(character, "?") for character in text), error.end


def _command(arguments: Sequence[str] | None) -> int:
    import typer

    from ...registry import UserError

    usage_error: Any = typer.BadParameter.__bases__[0]  # its module depends on the version of typer
    given = [_at_home(each) for each in (sys.argv[1:] if arguments is None else arguments)]
    try:
        _check_text(given)
        from .app import app

        code = app(args=given, standalone_mode=False, prog_name="fglbench")
    except UserError as error:
        return _complain(str(error), error.code)
    except usage_error as error:
        where = f"; see {error.ctx.command_path} -h" if getattr(error, "ctx", None) else ""
        return _complain(f"{error.format_message().rstrip('.')}{_given(error, given)}{where}")
    except typer.Abort:
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of the output has ended, for example `head`
        sys.stderr.close()
        return 0
    except Exception as error:
        from ..store.provenance import check_packages

        try:
            check_packages()
        except UserError as unfit:
            return _complain(str(unfit))
        from ..known import PLUGINS

        if (plugins := sys.modules.get(PLUGINS)) is not None and plugins.raised(error):
            from ..runner.execute import explain

            return _complain(explain(error), 1)
        if not isinstance(error, EXTREME):
            raise
        name = f" ({error.filename!r:.200})" if isinstance(error, OSError) and error.filename else ""
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        fix = "see who may read and write there, or give another path" if name else _fix_of(error)
        return _complain(f"this cannot be done: {reason:.200}{name}; {fix}")
    if code == INTERRUPTED:  # typer may return this code for an interrupt
        return _complain(STOPPED, INTERRUPTED)
    return code if isinstance(code, int) else 0


def _given(error: Any, arguments: Sequence[str]) -> str:
    """The value of the option that the error is about, if its message does not repeat it."""
    value = ""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        for flag in getattr(getattr(error, "param", None), "opts", ()):
            start = flag if len(flag) == len("-j") else f"{flag}="
            if argument == flag:
                value = following
            elif argument.startswith(start):
                value = argument.removeprefix(start)
    repeated = re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", error.format_message())
    return f", got {value!r:.60}" if value and not repeated else ""


def _fix_of(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the folder of this command has been removed: change to another"
    return "see whether disk, network and limits allow it" if isinstance(error, OSError) else "give a smaller number"


def _at_home(argument: str) -> str:
    """Expand ~/ in an argument, or in the value of `--option=value`, as a shell does."""
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return f"{option}{equals}{os.path.expanduser(value)}" if value == "~" or value.startswith("~/") else argument


def _check_text(arguments: Sequence[str]) -> None:
    """Raise UserError for an empty argument, and for bytes that are no text."""
    from ...registry import UserError

    for before, argument in zip(["", *arguments], arguments, strict=False):
        unset = argument.startswith("--") and argument.endswith("=")
        if unset or not argument.strip():
            option = argument[:-1] if unset else before if before.startswith("-") else ""
            where = f" of {option}" if option else ""
            raise UserError(
                f"an argument{where} is empty (a shell variable that is not set?); give a value or leave it out"
            )
        if "\0" in argument or any("\ud800" <= character <= "\udfff" for character in argument):
            raise UserError(f"the argument {argument!a:.200} is not text in this system's encoding; write it in UTF-8")


def _complain(line: str, code: int = 2) -> int:
    words = " ".join(word if len(word) <= WORD else f"{word[:WORD]}..." for word in line.split())
    print(f"fglbench: {words:.{LINE}}", file=sys.stderr)
    return code
