"""Pack rows and metadata of a method as a submission, and file a valid submission in `results/submissions/`."""

from __future__ import annotations

import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ... import files, yamltext
from ...registry import UserError, did_you_mean, first_error
from ..store import Store, row_file
from ..store.row_file import submission_folder
from ..store.schema import Row
from ..suites.select import CUSTOM
from ..suites.tuned import read_tuned, write_tuned
from .listing import METADATA, SETTINGS, SUBMISSION, Folder


def _must(be: str, is_valid: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        if not is_valid(text):
            raise ValueError(f"must {be}")
        return text

    return AfterValidator(check)


ADDRESS = re.compile(r"https?://[!-~]+")  # printable ASCII without spaces
SHORT = StringConstraints(strip_whitespace=True, min_length=2, max_length=300, strict=True)
Text = Annotated[str, SHORT, _must("be one line of printable characters", str.isprintable)]
Address = Annotated[Text, _must("be an https:// or http:// address in ASCII", ADDRESS.fullmatch)]


class Metadata(BaseModel):
    """The metadata of a submission. All fields except `notes` are required."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Text = Field(description="the method's registered name")
    paper: Text = Field(description="citation or address of the paper; 'unpublished' if there is none")
    code: Address = Field(description="address of the code that made the rows")
    licence: Text = Field(description="licence of that code, as in MIT or Apache-2.0")
    hardware: Text = Field(description="the machine of the runs: processor, cores, memory")
    contact: Text = Field(description="e-mail, address or @name for questions")
    notes: Annotated[str, Field(max_length=2000, strict=True)] = Field("", description="anything else")

    def text(self) -> str:
        """The content of the file."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True, width=1000)


def metadata(values: Mapping[str, Any]) -> Metadata:
    """Check metadata. UserError (one line) with all missing fields, or with the wrong field."""
    unknown = [name for name in values if name not in Metadata.model_fields]
    if unknown:
        raise did_you_mean(str(unknown[0]), Metadata.model_fields, "field of the metadata")
    required = [name for name, info in Metadata.model_fields.items() if info.is_required()]
    missing = [name for name in required if values.get(name) in (None, "")]
    if missing:
        options = " ".join(f"--{name} TEXT" for name in missing if name != "method")
        raise UserError(f"the metadata lack {', '.join(missing)}; give {options}, or --meta FILE with these keys")
    try:
        return Metadata.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(f"{first_error(error, Metadata, 'metadata')!s:.300}") from None


def read_fields(path: Path) -> dict[str, Any]:
    """The content of a metadata file (YAML or JSON), not checked. UserError for any other file."""
    try:
        if path.stat().st_size > (most := SUBMISSION["metadata"][1]):
            raise UserError(f"{path}: larger than {most >> 10} KiB; metadata are a few lines")
        values = yamltext.parse(path.read_text(encoding="utf-8"), str(path))[1]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the metadata {str(path)!r}: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: metadata are keys with values: {', '.join(Metadata.model_fields)}")
    return values


def rows_to_submit(store: Store, method: str, suites: Sequence[str] = ()) -> list[Row]:
    """The current rows of a method in these suites (none: all except `custom`). UserError if there are no rows."""
    rows = store.existing().rows(latest_only=True)
    mine = [row for row in rows if row.method == method]
    if not rows:
        raise UserError(f"no result rows under {str(store.root)!r}; run `fglbench run -m {method}` first")
    if not mine:
        raise did_you_mean(method, {row.method for row in rows}, f"method with rows under {str(store.root)!r}:")
    present = {row.suite for row in mine}
    for suite in sorted(set(suites) - present):
        raise did_you_mean(suite, present, f"suite with rows of {method!r}:")
    wanted = set(suites) or present - {CUSTOM}
    if not wanted:
        raise UserError(f"all rows of {method!r} have changed settings (suite 'custom'); run it with -s SUITE only")
    return [row for row in mine if row.suite in wanted]


def write(store: Store, rows: Sequence[Row], about: Metadata, folder: Path, settings: Path | None = None) -> None:
    """Write a submission of rows into an empty folder. settings: a file of `fglbench tune` with those of the method.

    UserError if a side file of a row is missing.
    """
    target = Store(folder)
    for row in rows:
        _add(store, target, row)
    for digest in {row.environment for row in rows}:
        _copy(store.environment_file(digest), target.environment_file(digest))
    (folder / METADATA).write_text(about.text(), encoding="utf-8")
    if settings is not None:
        table = read_tuned(settings)
        if about.method not in table:
            raise UserError(f"{str(settings)!r} has no settings of {about.method}; give the file of `fglbench tune`")
        write_tuned(folder / SETTINGS, {about.method: table[about.method]})


def _add(source: Store, target: Store, row: Row) -> None:
    """Add a row and, if its status is ok, its curves in a single file. UserError if these are missing."""
    if row.status == "ok":
        place = source.history_file(row.suite, row.key)
        try:
            curves = source.history(row.suite, row.key)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise UserError(f"{place} cannot be read ({error!s:.120}); run it again with --rerun all") from None
        if curves is None:
            raise UserError(f"{place} is missing; run it again with --rerun all")
        target.write_history(row.suite, row.key, curves)
    row_file.append_row(target.file(row.suite, row.method), row)


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise UserError(f"{source} is missing; run it again with --rerun all")
    files.write_atomically(target, source.read_bytes())


@contextmanager
def placed(out: Path) -> Iterator[Path]:
    """An empty folder to fill, which then becomes `out`. UserError if `out` exists or cannot be written."""
    if out.suffix == ".zip":
        raise UserError(f"--out {str(out)!r}: a submission is a folder of a pull request, not a zip file")
    if out.exists() or out.is_symlink():
        raise UserError(f"{str(out)!r} exists already; remove it, or give another --out")
    with files.writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp") as temporary:
            folder = Path(temporary) / "submission"
            folder.mkdir()
            yield folder
            os.replace(folder, out)


def take_in(folder: Folder, results: Path) -> tuple[Path, int]:
    """File a valid submission in `results/submissions/`. Return (its folder there, number of new rows).

    Its rows are listed as self-reported and never ranked. UserError if the metadata differ from those in the folder, or
    if the folder cannot be written.
    """
    about = metadata(read_fields(folder.root / METADATA))
    root = submission_folder(results, about.method)
    if (kept := root / METADATA).is_file() and metadata(read_fields(kept)) != about:
        raise UserError(f"{kept} differs from the metadata of the submission; agree on one of them, then edit it there")
    store = Store(root)
    new = [row for row in folder.store.rows(latest_only=True) if row != store.find(row.suite, row.method, row.key)]
    for name in folder.files.get("environment", ()):
        _copy(folder.root / name, root / name)
    for row in new:
        _add(folder.store, store, row)
    for name in folder.files.get("settings", ()):
        _copy(folder.root / name, root / name)
    files.write_atomically(kept, about.text().encode())
    return root, len(new)
