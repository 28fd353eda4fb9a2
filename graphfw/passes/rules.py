"""Local rewrites: `@rule` functions rooted at an op, and `RuleSet`, the pass that applies them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TypeAlias

from graphfw.errors import ArgumentError, PassError
from graphfw.ir.build import emit_all
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.op import Op, Trait
from graphfw.ir.rebuild import rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.base import Pass
from graphfw.utils.records import record
from graphfw.utils.signal_handlers import is_of_handler

Outputs: TypeAlias = tuple[Tensor, ...]

Apply: TypeAlias = Callable[[Node, Outputs], "Tensor | Outputs | None"]
"""Given a node and its inputs, which are settled: what to put in its place, or None.

The node's own `inputs` are those of the old graph: rules look at its op and types only.
"""


@record
class RewriteRule:
    """A local rewrite.

    Attributes:
        name: What reports and errors call it.
        roots: The ops that it starts from: classes of theirs, or traits that they have.
        before: An expression that it rewrites, over the names in `takes`; tests run it.
        after: What comes of it.
        takes: The types of the names: `"x: float32[3, n]; y: bool[]"`.
        apply: Does it.
    """

    name: str
    roots: tuple[type[Op] | Trait, ...]
    before: str
    after: str
    takes: str
    apply: Apply

    def starts_from(self, cls: type[Op]) -> bool:
        """Return whether ops of a class are among the roots."""
        return any(
            root in cls.traits if isinstance(root, Trait) else issubclass(cls, root)
            for root in self.roots
        )


def rule(
    root: type[Op] | Trait | tuple[type[Op] | Trait, ...],
    *,
    before: str,
    after: str,
    takes: str = "x: float32[3, n]",
) -> Callable[[Apply], RewriteRule]:
    """Make a `RewriteRule` of a function.

    A rule must keep every value: NaN, infinities, the sign of zero, integers that overflow. Only
    the bits inside a NaN are free.

    Raises:
        ArgumentError: A root is neither a class of ops nor a trait.
    """
    roots = root if isinstance(root, tuple) else (root,)
    for one in roots:
        start: object = one
        if not (isinstance(start, Trait) or (isinstance(start, type) and issubclass(start, Op))):
            is_name = isinstance(start, str)
            raise ArgumentError(
                f"rule: {start!r} is no class of ops, and no trait",
                fix=f"write gf.extend.lookup({start!r})" if is_name else "write the op's class",
            )

    def decorate(apply: Apply) -> RewriteRule:
        return RewriteRule(apply.__name__, roots, before, after, takes, apply)

    return decorate


@record
class RuleSet(Pass):
    """The pass that applies rules until none fits any more, in one walk from inputs to outputs."""

    name: str
    rules: tuple[RewriteRule, ...]

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        return rebuild(graph, _Driver(self, 10 * len(graph.nodes) + 100, hits).rewrite)


class _Driver:
    """One run of a rule set.

    Rules look upwards only, so a node whose inputs are settled is settled as soon as no rule fits
    it. Nodes that a rule makes are settled in turn, before the walk goes on.
    """

    def __init__(self, rule_set: RuleSet, budget: int, hits: Counter[str]) -> None:
        self.rule_set = rule_set
        self.budget = budget
        self.left = budget
        self.hits = hits
        self.recent: deque[str] = deque(maxlen=16)
        self.by_class: dict[type[Op], tuple[RewriteRule, ...]] = {}

    def rewrite(self, node: Node, inputs: Outputs) -> Outputs | None:
        """Return a node's replacement, settled, or None to keep it."""
        graph = current_graph()
        start = len(graph.nodes)
        made = self.first_hit(node, inputs)
        if made is None:
            return None
        settled: dict[Node, Outputs] = {}
        # Above a node's replacement lie the nodes that it is made of, first one on top.
        todo: list[tuple[Node, Outputs | None]] = [(node, made)]
        todo += [(fresh, None) for fresh in reversed(graph.nodes[start:])]
        while todo:
            at, made = todo.pop()
            if made is not None:
                settled[at] = tuple([_settled(t, settled) for t in made])
                continue
            inputs = tuple([_settled(t, settled) for t in at.inputs])
            start = len(graph.nodes)
            made = self.first_hit(at, inputs)
            if made is not None:
                todo.append((at, made))
                todo += [(fresh, None) for fresh in reversed(graph.nodes[start:])]
            elif any(a is not b for a, b in zip(inputs, at.inputs, strict=True)):
                settled[at] = emit_all(at.op, *inputs)
        return settled[node]

    def first_hit(self, node: Node, inputs: Outputs) -> Outputs | None:
        """Apply the first rule that fits."""
        op = node.op
        rules = self.by_class.get(type(op))
        if rules is None:
            rules = tuple(r for r in self.rule_set.rules if r.starts_from(type(op)))
            self.by_class[type(op)] = rules
        for rule in rules:
            try:
                replaced = rule.apply(node, inputs)
            except Exception as error:
                if is_of_handler(error):
                    raise
                message = f"the rule {rule.name} failed at {op.name}: {error}"
                raise PassError(message, at=node.loc) from error
            if replaced is not None:
                made = replaced if isinstance(replaced, tuple) else (replaced,)
                self._count(rule, node, made)
                return made
        return None

    def _count(self, rule: RewriteRule, node: Node, made: Outputs) -> None:
        types = tuple([t.type for t in made])
        if types != node.types:
            message = f"the rule {rule.name} makes {types} of {node.op.name}, which is {node.types}"
            raise PassError(message, at=node.loc)
        self.hits[rule.name] += 1
        self.recent.append(rule.name)
        self.left -= 1
        if self.left < 0:
            loop = " ↔ ".join([name for name in self.hits if name in self.recent])
            raise PassError(
                f"{self.rule_set.name} did not settle in {self.budget} rewrites: {loop} "
                f"at {node.op.name}",
                at=node.loc,
                fix="let none of these rules undo another",
            )


def _settled(tensor: Tensor, settled: dict[Node, Outputs]) -> Tensor:
    outputs = settled.get(tensor.node)
    return tensor if outputs is None else outputs[tensor.index]
