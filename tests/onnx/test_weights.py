"""Large weights go from a model's file into arrays; whatever is unusual is read by protobuf."""

import io

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphfw as gf
from graphfw.onnx import weights
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.reader import read_model
from tests.onnx.models import model

DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "uint64")
LARGE = weights._LARGE


def proto_of(tensors):
    """A model whose outputs are its weights."""
    nodes = [helper.make_node("Identity", [t.name], [f"{t.name}_out"]) for t in tensors]
    outputs = [
        helper.make_tensor_value_info(f"{t.name}_out", t.data_type, list(t.dims)) for t in tensors
    ]
    graph = helper.make_graph(nodes, "weights", [], outputs, list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def arrays_of(source):
    return dict(read_model(source).initializers())


def same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        np.testing.assert_array_equal(array, other[name])


def spans_of(data):
    found = weights.apart(io.BytesIO(data), len(data))
    return None if found is None else found.spans


@pytest.mark.parametrize("size", [LARGE // 8 - 1, LARGE // 8, LARGE])
def test_all_dtypes(rng, tmp_path, size):
    made = {dtype: rng.integers(0, 99, (size // 3, 3)).astype(dtype) for dtype in DTYPES}
    made["bfloat16"] = rng.standard_normal((1, size)).astype(ml_dtypes.bfloat16)
    made["int4"] = rng.integers(-8, 8, (2, size)).astype(ml_dtypes.int4)
    made["bool"] = rng.random((size, 20)) < 0.5
    made["small"] = rng.standard_normal(3)
    proto = proto_of([numpy_helper.from_array(array, name) for name, array in made.items()])
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    found = arrays_of(path)
    same(found, made)
    same(arrays_of(path.read_bytes()), made)
    assert all(array.ctypes.data % array.itemsize == 0 for array in found.values())
    large = [k for k, t in enumerate(proto.graph.initializer) if len(t.raw_data) >= LARGE]
    assert list(spans_of(path.read_bytes())) == large
    assert size < LARGE or large


def test_a_graph_of_it_runs(rng, tmp_path):
    w = rng.standard_normal((300, 200), np.float32)
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 300)}, ["y"], {"w": w}
    )
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    x = rng.standard_normal((3, 300), np.float32)
    with gf.Session(gf.onnx.load(path)) as session:
        np.testing.assert_allclose(session.run("y", {"x": x}), x @ w, rtol=1e-4, atol=1e-4)
    with gf.Session(gf.onnx.load(path, trainable=True)) as session:
        np.testing.assert_array_equal(session["w"], w)


def test_elements_in_other_fields(rng, tmp_path):
    wanted = rng.standard_normal(LARGE, np.float32)
    listed = TensorProto(name="listed", dims=[LARGE], data_type=TensorProto.FLOAT)
    listed.float_data.extend(wanted.tolist())
    proto = proto_of([listed])
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    assert spans_of(path.read_bytes()) == {}
    same(arrays_of(path), {"listed": wanted})


def test_external_data_stays_where_it_is(rng, tmp_path):
    wanted = rng.standard_normal((LARGE, 2), np.float32)
    proto = proto_of([numpy_helper.from_array(wanted, "w")])
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    assert spans_of((tmp_path / "m.onnx").read_bytes()) == {}
    same(arrays_of(tmp_path / "m.onnx"), {"w": wanted})


def test_two_graphs_are_one_for_protobuf(rng, tmp_path):
    one, two = rng.standard_normal((2, LARGE), np.float32)
    first = proto_of([numpy_helper.from_array(one, "one")])
    second = proto_of([numpy_helper.from_array(two, "two")])
    data = first.SerializeToString() + second.SerializeToString()
    assert spans_of(data) is None
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    same(arrays_of(path), {"one": one, "two": two})


def test_the_bytes_twice_are_the_last(rng, tmp_path):
    wanted, other = rng.standard_normal((2, LARGE), np.float32)
    tensor = numpy_helper.from_array(wanted, "w").SerializeToString()
    doubled = TensorProto(raw_data=other.tobytes()).SerializeToString() + tensor
    inner = proto_of([]).graph.SerializeToString() + weights._message(5, doubled)
    path = tmp_path / "model.onnx"
    path.write_bytes(weights._message(7, inner))
    assert spans_of(path.read_bytes()) == {}
    same(arrays_of(path), {"w": wanted})


@pytest.mark.parametrize("dims", [[LARGE + 1], [LARGE, 2], [-1], [1 << 40, 1 << 20]])
def test_dims_that_are_not_the_bytes(rng, tmp_path, dims):
    tensor = numpy_helper.from_array(rng.standard_normal(LARGE, np.float32), "w")
    del tensor.dims[:]
    tensor.dims.extend(dims)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto_of([tensor]).SerializeToString())
    with pytest.raises(OnnxError, match=r"'w' (should have|has a negative size)"):
        gf.onnx.load(path)


def test_files_that_end_too_early(rng, tmp_path):
    tensors = [numpy_helper.from_array(rng.standard_normal(LARGE, np.float32), n) for n in "ab"]
    data = proto_of(tensors).SerializeToString()
    path = tmp_path / "model.onnx"
    for end in (0, 1, 5, *rng.integers(2, len(data), 30).tolist(), len(data) - 1):
        path.write_bytes(data[:end])
        assert spans_of(data[:end]) is None or end < 6
        with pytest.raises(gf.errors.GraphfwError):
            gf.onnx.load(path)


def test_a_file_that_shrinks_while_it_is_read(rng, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(100))
    with path.open("rb") as file:
        wanted = [weights.Wanted(4, np.dtype(np.float32), (3, 8))]
        (array,) = weights.read(file, wanted)
        assert array.shape == (3, 8)
        assert weights.read(file, [*wanted, weights.Wanted(80, np.dtype(np.int64), (3,))]) is None


def test_random_bytes_are_read_or_left_alone(rng):
    for _ in range(300):
        data = rng.integers(0, 256, int(rng.integers(0, 60)), np.uint8).tobytes()
        found = weights.apart(io.BytesIO(data), len(data))
        assert found is None or found.rest == data or found.spans == {}
