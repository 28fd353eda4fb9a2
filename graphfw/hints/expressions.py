"""Expressions with the user's arguments in the place of those in a table."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature
from typing import Any, NamedTuple

from graphfw.hints.foreign_arguments import MODES, SYNONYMS

UNKNOWN = object()
"""The value of an argument of which only the text is known."""

_DTYPES = {"bfloat", "bool", "complex", "double", "float", "half", "int", "long", "uint"}


class Argument(NamedTuple):
    """An argument as it is written, and its value."""

    text: str
    value: Any = UNKNOWN

    @classmethod
    def of_text(cls, text: str) -> Argument:
        """Return the argument of an expression's text, with its value if it is a literal."""
        try:
            return cls(text, ast.literal_eval(text))
        except (ValueError, TypeError, SyntaxError):
            return cls(text)

    @property
    def is_dtype(self) -> bool:
        """Whether it is a dtype, as far as that can be seen."""
        if self.value is UNKNOWN or isinstance(self.value, str):
            name = self.value if isinstance(self.value, str) else self.text
            return name.rpartition(".")[2].rstrip("_0123456789") in _DTYPES
        return isinstance(self.value, type) or (
            hasattr(self.value, "itemsize") and not self.is_array
        )

    @property
    def is_array(self) -> bool:
        """Whether it is an array or a tensor."""
        return hasattr(self.value, "shape") and hasattr(self.value, "dtype")

    @property
    def is_sequence(self) -> bool:
        """Whether it is a list or a tuple, as far as that can be seen."""
        if self.value is UNKNOWN:
            return isinstance(parsed(self.text), (ast.List, ast.ListComp, ast.Tuple))
        return isinstance(self.value, (list, tuple))

    @property
    def is_spread(self) -> bool:
        """Whether it stands for several arguments, as `*shape` does."""
        return self.text.startswith("*")


def filled(
    calls: Iterable[tuple[str, str]],
    positional: Sequence[Argument],
    keywords: Mapping[str, Argument],
) -> str:
    """Return the expression of the first call that arguments fit, with these in it, or "".

    What belongs to an argument that is not given, and is None in the table, is left out.

    >>> given = [Argument("bias"), Argument("x + 1"), Argument("w")]
    >>> filled([("addmm(c, a, b)", "c + a @ b")], given, {})
    'bias + (x + 1) @ w'
    >>> filled([("amax(x, axis=None)", "gf.max(x, axis=axis)")], [Argument("x")], {})
    'gf.max(x)'
    """
    for call, expression in calls:
        signature = _signature(call)
        named = {_own(name, signature): argument for name, argument in keywords.items()}
        try:
            bound = signature.bind(*positional, **named)
        except TypeError:
            continue
        texts = _texts(signature, bound.arguments)
        if texts is None:
            continue
        defaults = {
            name: () if parameter.kind is Parameter.VAR_POSITIONAL else parameter.default
            for name, parameter in signature.parameters.items()
            if name not in bound.arguments
        }
        missing = {name for name, default in defaults.items() if default == "None"}
        body = ast.parse(expression, mode="eval")
        return ast.unparse(_Filling({**defaults, **texts}, missing).visit(body))
    return ""


def plain(call: str) -> str:
    """Return a call of a table without what it says of its arguments.

    >>> plain('tri(n, m: number, *, k: "x" = None)')
    'tri(n, m, *, k=None)'
    """
    definition: Any = ast.parse(f"def {call}: pass")
    for node in ast.walk(definition):
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(definition).removeprefix("def ").partition(":\n")[0]


@cache
def _signature(call: str) -> Signature:
    """Return the parameters of a call as a table has it: as of a definition.

    An annotation says what an argument has to be seen to be: `dtype`, `list`, `number` (which is
    no list), `tensor`, a literal, or a tuple of names, for the elements of a list of as many.
    """
    definition: Any = ast.parse(f"def {call}: pass").body[0]
    arguments = definition.args
    kinds = [
        *[(a, Parameter.POSITIONAL_OR_KEYWORD) for a in arguments.args],
        *([(arguments.vararg, Parameter.VAR_POSITIONAL)] if arguments.vararg else []),
        *[(a, Parameter.KEYWORD_ONLY) for a in arguments.kwonlyargs],
    ]
    required: list[Any] = [None] * (len(arguments.args) - len(arguments.defaults))
    defaults = [*required, *arguments.defaults, *([None] if arguments.vararg else [])]
    defaults += arguments.kw_defaults
    empty = Parameter.empty
    return Signature(
        [
            Parameter(
                argument.arg,
                kind,
                default=ast.unparse(default) if default else empty,
                annotation=ast.unparse(argument.annotation) if argument.annotation else empty,
            )
            for (argument, kind), default in zip(kinds, defaults, strict=True)
        ]
    )


def _own(name: str, signature: Signature) -> str:
    """Return a table's name of an argument."""
    names = [name, *SYNONYMS.get(name, ())]
    return next((n for n in names if n in signature.parameters), name)


def _texts(signature: Signature, filled: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments' texts; None if they are not what the table says they have to be."""
    texts: dict[str, Any] = {}
    for name, argument in filled.items():
        parameter = signature.parameters[name]
        is_variadic = parameter.kind is Parameter.VAR_POSITIONAL
        arguments = argument if is_variadic else (argument,)
        if not is_variadic and argument.is_spread:
            return None
        for one in arguments:
            elements = _elements(one, parameter.annotation)
            if elements is None:
                return None
            texts.update(elements)
        texts[name] = tuple([a.text for a in arguments]) if is_variadic else argument.text
        if name == "mode" and argument.value in MODES:
            texts[name] = repr(MODES[argument.value])
    return texts


def _elements(argument: Argument, kind: str) -> dict[str, str] | None:
    """Return the elements of a list by the names of a kind; None if the argument is not of it."""
    simple: dict[Any, bool] = {
        Parameter.empty: True,
        "dtype": argument.is_dtype,
        "list": argument.is_sequence,
        "number": not argument.is_sequence and not argument.is_array,
        "tensor": argument.is_array,
    }
    if kind in simple:
        return {} if simple[kind] else None
    wanted, found = parsed(kind), parsed(argument.text)
    if not isinstance(wanted, ast.Tuple):
        return {} if ast.dump(wanted) == ast.dump(found) else None
    if not isinstance(found, (ast.List, ast.Tuple)) or len(found.elts) != len(wanted.elts):
        return None
    return dict(zip(map(ast.unparse, wanted.elts), map(ast.unparse, found.elts), strict=True))


class _Filling(ast.NodeTransformer):
    """Replaces names by texts of expressions; a starred name by several."""

    def __init__(self, texts: Mapping[str, str | tuple[str, ...]], missing: set[str]) -> None:
        self.texts = texts
        self.missing = missing

    def visit_Name(self, node: ast.Name) -> ast.expr:
        text = self.texts.get(node.id)
        return parsed(text) if isinstance(text, str) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.func = self.visit(node.func)
        filled = list(node.args)
        while filled and self._is_missing(filled[-1]):
            filled.pop()
        node.args = self._spread(filled)
        node.keywords = [self.visit(k) for k in node.keywords if not self._is_missing(k.value)]
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.Tuple:
        node.elts = self._spread(node.elts)
        return node

    def _is_missing(self, value: ast.expr) -> bool:
        """Return whether a value is made of an argument that is not given, and of no call."""
        nodes = list(ast.walk(value))
        is_call = any(isinstance(n, ast.Call) for n in nodes)
        return not is_call and any(isinstance(n, ast.Name) and n.id in self.missing for n in nodes)

    def _spread(self, items: Sequence[ast.expr]) -> list[ast.expr]:
        """Visit elements; where several texts stand after a star, put them there."""
        spread: list[ast.expr] = []
        for item in items:
            texts: Any = None
            if isinstance(item, ast.Starred) and isinstance(item.value, ast.Name):
                texts = self.texts.get(item.value.id)
            whole = parsed(texts) if isinstance(texts, str) else None
            if isinstance(texts, tuple):
                spread += [parsed(text) for text in texts]
            elif isinstance(whole, (ast.Tuple, ast.List)):
                spread += whole.elts
            else:
                spread.append(self.visit(item))
        return spread


def parsed(text: str) -> ast.expr:
    """Return a new tree of an expression, which may have a star."""
    call: Any = ast.parse(f"f({text})", mode="eval").body
    return call.args[0] if len(call.args) == 1 else ast.parse(text, mode="eval").body
