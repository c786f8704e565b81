"""The source that a class computes with: its definition and all it reaches within given modules, in a normal form.

Read from the text, nothing is imported: so it can be asked of any commit. The normal form keeps what computes. Which
module a definition stands in, imports, comments, docstrings, a field's description and the range that it is tuned
over, annotations of functions, what a type checker wants (`assert isinstance`, `cast`), timing (`section`) and that a
method of nodes is for graphs too (`graphwise`, `domainwise`) have no part in it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import resolve_name

Source = Callable[[str], tuple[str, bool] | None]  # module -> its text and whether it is a package; None: not ours
IGNORED = {"ctx", "kind", "type_comment", "type_params", "type_ignores"}  # of a node: they depend on Python's version
NARROWING, CAST, TIMING, FIELD = "isinstance", "cast", "section", "Field"
SAID = ("graphwise", "domainwise")  # of a class: what it is for, which changes no number where it already ran
TOLD = ("description", "json_schema_extra")  # what a field says of itself and nothing computes with

Import = tuple[str, str]  # module, name there; "" for the module itself
Module = dict[str, ast.stmt | Import]  # what a module has at its top level
Place = tuple[str, ast.stmt]  # a definition and the module that it stands in
Read = Callable[[str], Module | None]


def reader(source: Source) -> Read:
    """Modules parsed once. For `source_hash`."""
    return cache(lambda module: None if (found := source(module)) is None else _parsed(module, *found))


def source_hash(read: Read, module: str, name: str) -> str | None:
    """First 12 hex digits of the sha256 of what the definition `name` of `module` reaches; None if it is not there.

    Two definitions with the same normal form are one. The own one stands first, so that no two share a hash by chance.
    """
    start = _resolve(read, module, name)
    if start is None:
        return None
    forms, queue = list[str](), [start]
    for where, definition in queue:  # which grows
        form, names = _normal(definition)
        forms.append(form)
        for reached in names:
            target = _reached(read, where, *reached)
            if target is not None and target not in queue:
                queue.append(target)
    text = "\0".join([forms[0], *sorted(set(forms[1:]))])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _parsed(module: str, text: str, package: bool) -> Module:
    """What a module has at its top level; what it defines goes before what it imports."""
    parent = module if package else module.rpartition(".")[0]
    defined, imported = dict[str, ast.stmt](), dict[str, Import]()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), parent)
            imported |= {alias.asname or alias.name: (origin, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.asname: (alias.name, "") for alias in node.names if alias.asname}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            defined |= dict.fromkeys(_assigned(node), node)
    return {**imported, **defined}


def _assigned(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [own.id for target in targets for own in ast.walk(target) if isinstance(own, ast.Name)]


def _resolve(read: Read, module: str, name: str) -> Place | None:
    """Where a name that a module has is defined, among our modules; through any module that passes it on."""
    for _ in range(8):  # a name that is passed on in a circle is nobody's
        found = (read(module) or {}).get(name)
        if isinstance(found, ast.stmt):
            return module, found
        module, name = found or ("", "")
    return None


def _reached(read: Read, module: str, name: str, attribute: str = "") -> Place | None:
    """What `name` or `name.attribute` stands for in a module, where the name may be another module's."""
    found = (read(module) or {}).get(name)
    whole = ".".join(filter(None, found)) if isinstance(found, tuple) else ""
    if attribute and read(whole) is not None:
        return _resolve(read, whole, attribute)
    return _resolve(read, module, name)


def _names(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr
        elif isinstance(node, ast.Name):
            yield (node.id,)


def _called(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


class _Strip(ast.NodeTransformer):
    """Takes out what does not compute."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns, node.body = None, _without_docstring(node.body)
        node.decorator_list = [own for own in node.decorator_list if not _called(own, TIMING)]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        # Of a class the annotations are its fields' types, which compute: values are converted by them.
        kept = [own.annotation if isinstance(own, ast.AnnAssign) else None for own in node.body]
        self.generic_visit(node)
        for own, annotation in zip(node.body, kept, strict=True):
            if isinstance(own, ast.Assign) and annotation is not None:
                own.targets.append(annotation)
        node.body = [own for own in _without_docstring(node.body) if not _only_said(own)]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        return ast.Assign([node.target], node.value) if node.value is not None else ast.Pass()

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.body if all(_called(item.context_expr, TIMING) for item in node.items) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Pass() if _called(node.test, NARROWING) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _called(node, CAST) and len(node.args) == 2:
            return node.args[1]
        if _called(node, FIELD):
            node.keywords = [own for own in node.keywords if own.arg not in TOLD]
        return node


def _only_said(node: ast.stmt) -> bool:
    """Whether a statement of a class does no more than say what the class is for."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return bool(targets) and all(isinstance(own, ast.Name) and own.id in SAID for own in targets[:1])


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        body = body[1:]
    return [own for own in body if not isinstance(own, ast.Pass)]


@cache
def _normal(node: ast.stmt) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The normal form of a definition and the names in it. Of many methods' closures, worked out once."""
    copy: ast.AST = _Strip().visit(ast.parse(ast.unparse(node)).body[0])
    return _form(copy), tuple(dict.fromkeys(_names(copy)))


def _form(node: object) -> str:
    """A node as text that does not depend on the version of Python."""
    if isinstance(node, ast.AST):
        fields = [own for own in ast.iter_fields(node) if own[0] not in IGNORED and own[1] not in (None, [])]
        return f"({type(node).__name__}{''.join(f' {name}={_form(value)}' for name, value in fields)})"
    return f"[{''.join(map(_form, node))}]" if isinstance(node, list) else repr(node)
