"""The source that a class computes with: its definition and all it reaches within given modules, in a normal form.

Read from the text, nothing is imported: so it can be asked of any commit. The normal form keeps what computes. Which
module a definition stands in, imports, comments, docstrings, the wording of a field's description, annotations of
functions, what a type checker wants (`assert isinstance`, `cast`) and timing (`section`) have no part in it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

Source = Callable[[str], tuple[str, bool] | None]  # module -> its text and whether it is a package; None: not ours
IGNORED = {"ctx", "kind", "type_comment", "type_params", "type_ignores"}  # of a node: they depend on Python's version
NARROWING, CAST, TIMING, FIELD = "isinstance", "cast", "section", "Field"


@dataclass
class _Module:
    """What a module defines at its top level, and where the names come from that it imports."""

    defined: dict[str, ast.stmt] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)  # name here -> (module, name there or "")


Place = tuple[str, str]  # module, name
Read = Callable[[str], _Module | None]


def reader(source: Source) -> Read:
    """Modules parsed once. For `source_hash`."""
    return cache(lambda module: _read(source, module))


def source_hash(read: Read, module: str, name: str) -> str | None:
    """First 12 hex digits of the sha256 of what the definition `name` of `module` reaches; None if it is not there.

    Two definitions with the same normal form are one. The own one stands first, so that no two share a hash by chance.
    """
    start = _resolve(read, module, name)
    if start is None:
        return None
    forms, queue, seen = list[str](), [start], {start}
    while queue:
        where, own = queue.pop()
        found = read(where)
        assert found is not None
        tree = _stripped(found.defined[own])
        forms.append("".join(_form(tree)))
        for reached in _names(tree):
            target = _reached(read, where, reached)
            if target is not None and target not in seen:
                seen.add(target)
                queue.append(target)
    text = "\0".join([forms[0], *sorted(set(forms[1:]))])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _read(source: Source, module: str) -> _Module | None:
    found = source(module)
    if found is None:
        return None
    text, package = found
    here = _Module()
    parent = module if package else module.rpartition(".")[0]
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            above = parent.split(".")[: len(parent.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            here.imported |= {alias.asname or alias.name: (origin, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            here.imported |= {alias.asname: (alias.name, "") for alias in node.names if alias.asname}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            here.defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            here.defined |= {n.id: node for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return here


def _resolve(read: Read, module: str, name: str) -> Place | None:
    """Where a name that a module has is defined, among our modules; through any module that passes it on."""
    for _ in range(8):  # a name that is passed on in a circle is nobody's
        found = read(module)
        if found is None:
            return None
        if name in found.defined:
            return module, name
        module, name = found.imported.get(name, ("", ""))
    return None


def _reached(read: Read, module: str, names: tuple[str, ...]) -> Place | None:
    """What `name` or `module.name` stands for in a module."""
    here = read(module)
    assert here is not None
    if len(names) == 1 or names[0] in here.defined:
        return _resolve(read, module, names[0])
    origin, name = here.imported.get(names[0], ("", ""))
    whole = f"{origin}.{name}" if name else origin
    return _resolve(read, whole, names[1]) if read(whole) is not None else _resolve(read, module, names[0])


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
        node.body = _without_docstring(node.body)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return ast.Pass()
        return ast.Assign([node.target], node.value)

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
            node.keywords = [own for own in node.keywords if own.arg != "description"]
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        body = body[1:]
    return [own for own in body if not isinstance(own, ast.Pass)]


def _stripped(node: ast.stmt) -> ast.AST:
    copy: ast.AST = _Strip().visit(ast.parse(ast.unparse(node)).body[0])
    return copy


def _form(node: object) -> Iterator[str]:
    """A node as text that does not depend on the version of Python."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name not in IGNORED and value not in (None, []):
                yield f" {name}="
                yield from _form(value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for own in node:
            yield from _form(own)
        yield "]"
    else:
        yield repr(node)
