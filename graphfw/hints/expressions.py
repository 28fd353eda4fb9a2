"""Expressions with the user's arguments in the place of those in a table."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

from graphfw.hints.foreign_arguments import SYNONYMS


def filled(
    calls: Iterable[tuple[str, str]], positional: Sequence[str], keywords: Mapping[str, str]
) -> str:
    """Return the expression of the first call that arguments fit, with these in it, or "".

    >>> filled([("addmm(c, a, b)", "c + a @ b")], ["bias", "x + 1", "w"], {})
    'bias + (x + 1) @ w'
    """
    for call, expression in calls:
        signature = _signature(call)
        named = {_own(name, signature): text for name, text in keywords.items()}
        try:
            bound = signature.bind(*positional, **named)
        except TypeError:
            continue
        bound.apply_defaults()
        body = ast.parse(expression, mode="eval")
        return ast.unparse(_Filling(bound.arguments).visit(body))
    return ""


def _signature(call: str) -> Signature:
    """Return the parameters of a call as a table has it."""
    parsed: Any = ast.parse(call, mode="eval").body
    required = []
    for argument in map(ast.unparse, parsed.args):
        kind = Parameter.VAR_POSITIONAL if argument[0] == "*" else Parameter.POSITIONAL_OR_KEYWORD
        required.append(Parameter(argument.lstrip("*"), kind))
    optional = [
        Parameter(k.arg, Parameter.POSITIONAL_OR_KEYWORD, default=ast.unparse(k.value))
        for k in parsed.keywords
    ]
    return Signature([*required, *optional])


def _own(name: str, signature: Signature) -> str:
    """Return graphfw's name of an argument of a table."""
    names = [name, *SYNONYMS.get(name, ())]
    return next((n for n in names if n in signature.parameters), name)


class _Filling(ast.NodeTransformer):
    """Puts texts of expressions in the places of names; of several, after a star."""

    def __init__(self, texts: Mapping[str, str | tuple[str, ...]]) -> None:
        self.texts = texts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        text = self.texts.get(node.id)
        return _parsed(text) if isinstance(text, str) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.func = self.visit(node.func)
        node.args = self._spread(node.args)
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.Tuple:
        node.elts = self._spread(node.elts)
        return node

    def _spread(self, items: Sequence[ast.expr]) -> list[ast.expr]:
        """Visit elements; where several texts stand after a star, put them there."""
        spread: list[ast.expr] = []
        for item in items:
            texts: Any = None
            if isinstance(item, ast.Starred) and isinstance(item.value, ast.Name):
                texts = self.texts.get(item.value.id)
            whole = _parsed(texts) if isinstance(texts, str) else None
            if isinstance(texts, tuple):
                spread += [_parsed(text) for text in texts]
            elif isinstance(whole, (ast.Tuple, ast.List)):
                spread += whole.elts
            else:
                spread.append(self.visit(item))
        return spread


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
