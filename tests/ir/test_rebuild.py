"""Graphs from graphs: what is shared, what is replaced, what vanishes; and the rules verified."""

import pytest

import graphfw as gf
from graphfw.errors import PassError, VerifyError
from graphfw.ir.build import emit, emit_all
from graphfw.ir.op import REGISTRY
from graphfw.ir.rebuild import derive, live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ir.verify import verify, verify_new


def build() -> tuple[gf.Graph, Tensor, Tensor]:
    with gf.Graph("g") as g:
        x = gf.placeholder(("n", 3), name="x")
        dead = gf.exp(x)
        y = gf.identity(gf.tanh(x) * 2, name="y")
        gf.sum(dead)
    return g, x, y


def names(graph: gf.Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_derive_keeps_what_the_outputs_need():
    g, x, y = build()
    derived = derive(g, [y])
    assert names(derived) == ["placeholder", "tanh", "constant", "multiply", "identity"]
    assert derived.outputs == (y,)
    assert derived.nodes[0] is x.node
    assert derived.is_derived
    assert derived.name == "g"
    assert len(g.nodes) > len(derived.nodes)
    verify(derived)


def test_rebuilding_without_a_change_shares_everything():
    g, _, y = build()
    derived = derive(g, [y, y])
    again = rebuild(derived, lambda node, inputs: None)
    assert [a is b for a, b in zip(again.nodes, derived.nodes, strict=True)] == [True] * 5
    assert again.outputs[0] is again.outputs[1] is y
    assert rebuild(again).nodes == again.nodes


def test_a_rewrite_copies_what_depends_on_it():
    g, _, y = build()

    def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
        return gf.sin(inputs[0]) if node.op.name == "tanh" else None

    derived = derive(g, [y])
    again = rebuild(derived, rewrite)
    verify(again)
    assert names(again) == ["placeholder", "sin", "constant", "multiply", "identity"]
    (result,) = again.outputs
    assert result is not y
    assert result.name == "y"  # names stay
    old = {node.op.name: node for node in derived.nodes}
    new = {node.op.name: node for node in again.nodes}
    assert new["placeholder"] is old["placeholder"]
    assert new["constant"] is old["constant"]
    assert new["sin"].loc == old["tanh"].loc  # places stay
    assert new["multiply"].loc == old["multiply"].loc
    assert new["multiply"] is not old["multiply"]
    assert names(derived)[1] == "tanh"  # the graph it was made of is as it was
    assert old["multiply"].inputs[0].node is old["tanh"]


def test_what_a_rewrite_frees_vanishes():
    g, _, y = build()

    def bypass(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
        return inputs[0] if node.op.name in ("multiply", "identity") else None

    again = rebuild(rebuild(derive(g, [y]), bypass))
    assert names(again) == ["placeholder", "tanh"]


def test_live_nodes_are_in_the_graphs_order():
    g, x, y = build()
    derived = derive(g, [y, x])
    assert live_nodes(derived) == derived.nodes
    derived.outputs = (x,)
    assert live_nodes(derived) == [x.node]
    derived.outputs = ()
    assert live_nodes(derived) == []


def test_a_rewrite_of_another_type_is_refused():
    g, _, y = build()

    def wrong(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
        return gf.sum(inputs[0]) if node.op.name == "tanh" else None

    with pytest.raises(PassError, match=r"a rewrite of tanh gives .*float32\[\].*, not") as caught:
        rebuild(derive(g, [y]), wrong)
    assert caught.value.at == next(n.loc for n in g.nodes if n.op.name == "tanh")
    assert gf.current_graph().is_ambient


def test_several_outputs():
    pair = REGISTRY["custom_gradient"](2, abs)
    with gf.Graph() as g:
        x = gf.placeholder((3,), name="x")
        a, b = emit_all(pair, x, gf.tanh(x), x)
        y = a - b

    def swap(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        return (inputs[1], inputs[0]) if node.op.name == "custom_gradient" else None

    again = rebuild(rebuild(derive(g, [y]), swap))
    verify(again)
    assert names(again) == ["placeholder", "tanh", "subtract"]
    assert [t.node.op.name for t in again.outputs[0].node.inputs] == ["tanh", "placeholder"]


def test_a_long_chain_does_not_recurse():
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        y = x
        for _ in range(20_000):
            y = emit(REGISTRY["negative"](), y)
    again = rebuild(derive(g, [y]), lambda node, inputs: None)
    assert len(again.nodes) == 20_001
    verify(again)


def test_variables_and_opset_stay():
    with gf.Graph() as g:
        w = gf.Variable([1.0], name="w")
        y = w * 2
    again = rebuild(derive(g, [y]))
    assert again.variables == g.variables
    assert again.opset == g.opset
    assert again.nodes[0] is w.node


# verify.


def broken(*, nodes: list[Node], outputs: tuple[Tensor, ...] = ()) -> gf.Graph:
    graph = gf.Graph()
    graph.nodes = nodes
    graph.outputs = outputs
    return graph


def test_verify_finds_what_is_broken():
    g, x, y = build()
    good = [node for node in g.nodes if node.op.name in ("placeholder", "tanh")]
    tanh = good[1]
    verify(broken(nodes=good, outputs=(tanh.outputs[0],)))
    strange = type("Strange", (type(tanh.op),), {})()
    lying = Node(tanh.op, tanh.inputs, (TensorType(gf.float32, (7,)),), tanh.loc, "", g)
    unfit = Node(REGISTRY["matmul"](), (x, x), (x.type,), tanh.loc, "", g)
    alien = Node(strange, tanh.inputs, tanh.types, tanh.loc, "", g)
    beyond = Node(tanh.op, (Tensor(x.node, 3),), tanh.types, tanh.loc, "", g)
    for nodes, outputs, match in (
        ([*good, tanh], (), "tanh: stands in the graph twice"),
        (good[::-1], (), "tanh: uses the result of placeholder before it is made"),
        ([*good[:1], lying], (), r"tanh: says .*float32\[7\].*, but its type rule gives"),
        ([*good[:1], unfit], (), "matmul: does not fit its inputs: contracting dims differ"),
        ([*good[:1], alien], (), "tanh: has an op that is not registered"),
        ([*good[:1], beyond], (), "tanh: uses output 3 of placeholder"),
        (good, (y,), "identity: is an output of the graph but not in it"),
    ):
        with pytest.raises(VerifyError, match=match):
            verify(broken(nodes=nodes, outputs=outputs))


def test_what_has_been_found_right_is_not_checked_again_but_where_it_stands():
    g, x, y = build()
    good = [node for node in g.nodes if node.op.name in ("placeholder", "tanh")]
    tanh = good[1]
    lying = Node(tanh.op, tanh.inputs, (TensorType(gf.float32, (7,)),), tanh.loc, "", g)
    right = set()
    verify_new(broken(nodes=good, outputs=()), right)
    assert right == set(good)
    for nodes in ([good[0], lying], good[::-1], [tanh]):
        with pytest.raises(VerifyError):
            verify_new(broken(nodes=nodes, outputs=()), right)
    verify_new(broken(nodes=[good[0], lying], outputs=()), {lying})
