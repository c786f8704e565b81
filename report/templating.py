"""Documents from templates: what may stand in one, and the texts of the report (templates/).

A template says where things stand; the content comes from the modules in MODULES, which it calls by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from . import characteristics, privacy_cost, provenance, special_tables, tables
from .text import count, finite, literal, md, plain, slug, to_markdown

MODULES = characteristics, privacy_cost, provenance, special_tables, tables


def environment(templates: Path, **options: Any) -> Environment:
    """The templates of a folder. Their blocks leave no line behind, and a name that is not known is an error."""
    jinja = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
    jinja.filters |= {"count": count, "literal": literal, "markdown": to_markdown, "md": md, "slug": slug}
    jinja.filters |= {"finite": finite, "plain": plain}
    jinja.globals |= {module.__name__.rpartition(".")[2]: module for module in MODULES}
    return jinja


_TEXTS = environment(Path(__file__).parent / "templates")


def document(template: str, **known: Any) -> str:
    """A text file. Nothing is escaped that the template does not pass through `md` or `literal`."""
    return _TEXTS.get_template(template).render(known)
