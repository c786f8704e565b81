"""Documents from templates, and the texts of the report (templates/).

A template arranges the content, which comes from functions of MODULES that it calls by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from . import characteristics, privacy_cost, provenance, robustness, special_tables, tables
from .cells import to_markdown
from .text import count, finite, literal, md, plain, slug

MODULES = characteristics, privacy_cost, provenance, robustness, special_tables, tables


def environment(templates: Path, **options: Any) -> Environment:
    """The templates of a folder. Blocks leave no empty line, and an unknown name is an error."""
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
    """Render a template as text. Only what the template passes through `md` or `literal` is escaped."""
    return _TEXTS.get_template(template).render(known)
