"""A user's program with mistakes: type checkers report each line that says so, and no other."""

import numpy as np

import graphfw as gf


class Net(gf.nn.Module):
    """A layer of the user's own."""

    def __init__(self) -> None:
        self.linear = gf.nn.Linear(4, 2)

    def forward(self, x: gf.Tensor, scale: float = 1.0) -> gf.Tensor:
        return self.linear(x) * scale


@gf.function
def double(a: gf.Tensor) -> gf.Tensor:
    """Compute a function of arrays."""
    return a + a


def mistakes() -> None:
    """Make them: it is not called."""
    with gf.Graph() as graph:
        x = gf.placeholder((2, 4), name="x")
        net = Net()
        y = net(x)
        net()  # mistake
        net([x])  # mistake
        net(x, "1")  # mistake
        net(x, factor=2.0)  # mistake
        net(x, training="no")  # mistake
        net.linear(x).foo  # mistake
        z: str = net(x)  # mistake
        h, c, more = gf.nn.LSTM(4, 3)(x)  # mistake
        double(x).foo  # mistake

    data = np.zeros((2, 4), np.float32)
    with gf.Session(graph) as session:
        session.run(3)  # mistake
        session.run([net])  # mistake
        session.run(y, [data])  # mistake
        session.run(y, {1: data})  # mistake
        session.run(y, {x: data}, True)  # mistake
        session.run(y, {x: data}).foo  # mistake
        session.run([y], {x: data}).shape  # mistake
        session.compile(y, x)  # mistake
        session.compile(y, [x])(data, limit=3)  # mistake
        session.compile(y, [x])(data).foo  # mistake

    double(data).foo  # mistake
    text: str = double(data)  # mistake
    double.fn(data)  # mistake
