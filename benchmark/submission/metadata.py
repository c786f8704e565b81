"""The metadata of a submission: who submits what, with which code, under which licence, run on what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ... import yamltext
from ...registry import UserError, did_you_mean, first_error
from .limits import METADATA_BYTES
from .lookalikes import deceives, plain_address, plain_addresses

FILE = "submission.yaml"
FOLDER = "submissions"  # where a results folder keeps them, one file a method


def _must(be: str, sound: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        if not sound(text):
            raise ValueError(f"must {be}")
        return text

    return AfterValidator(check)


def _spdx(text: str) -> bool:
    try:
        return bool(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return False


CONTACT = re.compile(r"[\w.+-]@[\w-]+\.\w|https?://[\w.-]+\.\w|^@[\w-]+$")
SHORT = StringConstraints(strip_whitespace=True, min_length=2, max_length=300, strict=True)
PLAIN = _must("have plain addresses, in ASCII letters", plain_addresses)
HONEST = _must("mix no alphabets within a word", lambda text: not deceives(text))
Line = Annotated[str, SHORT, _must("be one line of printable characters", str.isprintable), PLAIN, HONEST]
Address = Annotated[Line, _must("be an https:// or http:// address, in ASCII letters, without brackets", plain_address)]
Licence = Annotated[Line, _must("be an SPDX expression such as MIT, Apache-2.0 or LicenseRef-Proprietary", _spdx)]
Contact = Annotated[Line, _must("hold an e-mail address, a web address or an @name", CONTACT.search)]


class Metadata(BaseModel):
    """What a submission must say of itself. All but `notes` are required."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Line = Field(description="the method's registered name")
    paper: Line = Field(description="citation or address of the paper; 'unpublished' if there is none")
    code: Address = Field(description="address of the code that made the rows")
    licence: Licence = Field(description="licence of that code, as an SPDX expression: MIT, Apache-2.0, ...")
    hardware: Line = Field(description="what the rows were made on: processor, cores, memory")
    contact: Contact = Field(description="e-mail, address or @name for questions")
    notes: Annotated[str, Field(max_length=2000, strict=True)] = Field("", description="anything else")

    def text(self) -> str:
        """The content of the file."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True, width=1000)


REQUIRED = [name for name, info in Metadata.model_fields.items() if info.is_required()]


def metadata(values: Mapping[str, Any]) -> Metadata:
    """Checked metadata. UserError (one line) that names all that is missing, or what is wrong."""
    unknown = [name for name in values if name not in Metadata.model_fields]
    if unknown:
        raise did_you_mean(str(unknown[0]), Metadata.model_fields, "field of the metadata")
    missing = [name for name in REQUIRED if values.get(name) in (None, "")]
    if missing:
        options = " ".join(f"--{name} TEXT" for name in missing if name != "method")
        raise UserError(f"the metadata lack {', '.join(missing)}; give {options}, or --meta FILE with these keys")
    try:
        return Metadata.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(f"{first_error(error, Metadata, 'metadata')!s:.300}") from None


def read_fields(path: Path) -> dict[str, Any]:
    """The keys and values of a metadata file, YAML or JSON, unchecked. UserError when it is no such file."""
    try:
        if path.stat().st_size > METADATA_BYTES:
            raise UserError(f"{path}: larger than {METADATA_BYTES >> 10} KiB; metadata are a few lines")
        text = path.read_text(encoding="utf-8")
        values = yamltext.parse(text, str(path))[1]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the metadata {str(path)!r}: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: metadata are keys with values: {', '.join(Metadata.model_fields)}")
    return values


def read(path: Path) -> Metadata:
    """The checked metadata of a file. UserError as `metadata` and `read_fields`."""
    return metadata(read_fields(path))
