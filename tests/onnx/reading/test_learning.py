"""Pipelines of scikit-learn: their ONNX models give what scikit-learn itself predicts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.errors import ArgumentError
from eagerflow.graph.rows import mixing
from tests.onnx.reading.models import onnx

sklearn = pytest.importorskip("sklearn")
datasets = pytest.importorskip("sklearn.datasets")

from sklearn import ensemble, linear_model, neural_network, preprocessing, tree  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

CLASSIFIERS = [
    linear_model.LogisticRegression(max_iter=300),
    tree.DecisionTreeClassifier(max_depth=6, random_state=0),
    ensemble.RandomForestClassifier(20, random_state=0),
    ensemble.GradientBoostingClassifier(n_estimators=12, random_state=0),
    neural_network.MLPClassifier((8,), max_iter=80, random_state=0),
]
REGRESSORS = [
    linear_model.LinearRegression(),
    linear_model.Ridge(),
    tree.DecisionTreeRegressor(max_depth=5, random_state=0),
    ensemble.RandomForestRegressor(10, random_state=0),
    ensemble.ExtraTreesRegressor(10, random_state=0),
    ensemble.GradientBoostingRegressor(n_estimators=12, random_state=0),
    neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=80, random_state=0),
]
SCALERS = [
    preprocessing.StandardScaler(),
    preprocessing.MinMaxScaler(),
    preprocessing.Normalizer(),
    preprocessing.Normalizer("l1"),
    preprocessing.Normalizer("max"),
]


def name_of(model):
    return type(model).__name__


def pipeline_of(model):
    """The model behind a scaler, unless it is one of trees, for which last bits matter."""
    scaled = not hasattr(model, "max_depth")
    return make_pipeline(preprocessing.StandardScaler(), model) if scaled else make_pipeline(model)


def to_onnx(*args, **options):
    """What skl2onnx makes; the test is skipped where it is not installed."""
    return pytest.importorskip("skl2onnx").to_onnx(*args, **options)


def exported(model, x):
    """The graph that skl2onnx's model of a fitted pipeline becomes."""
    data = to_onnx(model, x[:1], options={"zipmap": False} if has_classes(model) else None)
    return ef.capture.import_onnx(data.SerializeToString())


def has_classes(model):
    return hasattr(model, "predict_proba")


def same(found, wanted):
    """Equal but for rounding, and for the few examples that lie on a border of float32."""
    close = np.isclose(np.asarray(found, "float64").reshape(wanted.shape), wanted, 1e-4, 1e-5)
    return close.reshape(len(wanted), -1).all(axis=1).mean() > 0.995


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("load", [datasets.load_iris, datasets.load_breast_cancer])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=name_of)
def test_classifiers(model, load):
    x, y = load(return_X_y=True)
    x = x.astype("float32")
    pipeline = pipeline_of(model).fit(x, y)
    graph = exported(pipeline, x)
    label, scores = graph(x).values()
    assert same(scores.numpy(), pipeline.predict_proba(x))
    assert (label.numpy() == pipeline.predict(x)).mean() > 0.995
    assert label.dtype.name == "int64" and not mixing(graph, str(graph.inputs[0].shape[0]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", REGRESSORS, ids=name_of)
def test_regressors(model):
    x, y = datasets.load_diabetes(return_X_y=True)
    x = x.astype("float32")
    pipeline = pipeline_of(model).fit(x, y)
    graph = exported(pipeline, x)
    assert same(next(iter(graph(x).values())).numpy(), pipeline.predict(x))
    assert not mixing(graph, str(graph.inputs[0].shape[0]))


@pytest.mark.parametrize("scaler", [*SCALERS, preprocessing.Binarizer(threshold=1.5)], ids=repr)
def test_scalers(scaler):
    x = datasets.load_iris().data.astype("float32")
    graph = exported(make_pipeline(scaler).fit(x), x)
    assert same(next(iter(graph(x).values())).numpy(), scaler.transform(x))


def test_missing_values():
    x, y = datasets.load_iris(return_X_y=True)
    x = x.astype("float32")
    x[::3, 1] = np.nan
    pipeline = make_pipeline(SimpleImputer(), linear_model.LogisticRegression(max_iter=300)).fit(
        x, y
    )
    assert same(exported(pipeline, x)(x)["probabilities"].numpy(), pipeline.predict_proba(x))


def test_classes_that_are_texts_are_refused_but_not_their_scores():
    x, y = datasets.load_iris(return_X_y=True)
    model = linear_model.LogisticRegression(max_iter=300).fit(x, np.array(["a", "b", "c"])[y])
    x = x.astype("float32")
    data = to_onnx(model, x[:1], options={"zipmap": False})
    with pytest.raises(ArgumentError, match="labels that are texts"):
        ef.capture.import_onnx(data.SerializeToString())
    del data.graph.output[0]
    for node in data.graph.node:
        if "LinearClassifier" in node.op_type:
            node.output[0] = ""
    kept = [n for n in data.graph.node if "label" not in "".join(n.input)]
    del data.graph.node[:]
    data.graph.node.extend(kept)
    (scores,) = ef.capture.import_onnx(data.SerializeToString())(x).values()
    assert same(scores.numpy(), model.predict_proba(x))


def test_dictionary_outputs_are_refused_with_a_hint():
    x, y = datasets.load_iris(return_X_y=True)
    data = to_onnx(linear_model.LogisticRegression(max_iter=300).fit(x, y), x[:1].astype("float32"))
    with pytest.raises(ArgumentError, match="zipmap"):
        ef.capture.import_onnx(data.SerializeToString())


# Nodes alone, as ONNX Runtime computes them -------------------------------------------------------

runtime = pytest.importorskip("onnxruntime")


def model_of(kind, shape, outputs, dtype="FLOAT", **attributes):
    """A model of one node, as bytes."""
    helper, types = onnx.helper, onnx.TensorProto
    names = [f"y{i}" for i in range(len(outputs))]
    node = helper.make_node(kind, ["x"], names, domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", getattr(types, dtype), shape)],
        [
            helper.make_tensor_value_info(name, getattr(types, t), None)
            for name, t in zip(names, outputs, strict=True)
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def compare(data, x, names=None):
    """Both runtimes give the same, for all outputs or those of these names."""
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found = ef.capture.import_onnx(data)(x)
    names = names or list(found)
    for mine, theirs in zip([found[n] for n in names], session.run(names, {"x": x}), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine.numpy().reshape(theirs.shape), theirs, 1e-5, 1e-6)


def random_trees(rng, count, features, modes, missing):
    """The attributes of random trees, and their leaves as (tree, node)."""
    rows, leaves = [], []
    for root in range(count):
        waiting, number = [(0, 0)], 1
        while waiting:
            node, depth = waiting.pop()
            if depth < 5 and rng.random() < 0.8:
                mode = modes[rng.integers(len(modes))]
                value = float(np.round(rng.standard_normal(), 1))
                nan = int(missing and rng.random() < 0.5)
                feature = int(rng.integers(features))
                rows.append((root, node, feature, value, mode, number, number + 1, nan))
                waiting += [(number, depth + 1), (number + 1, depth + 1)]
                number += 2
            else:
                rows.append((root, node, 0, 0.0, "LEAF", 0, 0, 0))
                leaves.append((root, node))
    names = "treeids nodeids featureids values modes truenodeids falsenodeids".split()
    columns = dict(zip([*names, "missing_value_tracks_true"], zip(*rows, strict=True), strict=True))
    return {f"nodes_{name}": list(column) for name, column in columns.items()}, leaves


def weights_of(rng, leaves, kind, results, positive):
    rows = [(*leaf, result) for leaf in leaves for result in results]
    numbers = rng.random(len(rows)) if positive else rng.standard_normal(len(rows))
    if not positive:
        numbers[0] = -1.0  # so that none take them for probabilities
    columns = zip(*rows, strict=True)
    named = dict(zip(["treeids", "nodeids", "ids"], columns, strict=True))
    return {f"{kind}_{name}": list(column) for name, column in named.items()} | {
        f"{kind}_weights": (numbers / len(leaves) * 8).astype("float32").tolist()
    }


ONE_MODE = [["BRANCH_LEQ"], ["BRANCH_LT"], ["BRANCH_GTE"], ["BRANCH_GT"]]
MODES = [*ONE_MODE, ["BRANCH_LEQ", "BRANCH_EQ"], ["BRANCH_GT", "BRANCH_NEQ", "BRANCH_LT"]]


def inputs(rng, missing):
    x = np.round(rng.standard_normal((50, 4)), 1).astype("float32")
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x


@settings(max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.sampled_from(MODES),
    st.booleans(),
    st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]),
    st.integers(1, 3),
)
def test_trees_of_numbers(seed, count, modes, missing, joined, targets):
    rng = np.random.default_rng(seed)
    missing &= "BRANCH_NEQ" not in modes  # the standard's own runtime asks the node first
    nodes, leaves = random_trees(rng, count, 4, modes, missing)
    data = model_of(
        "TreeEnsembleRegressor",
        ["n", 4],
        ["FLOAT"],
        n_targets=targets,
        aggregate_function=joined,
        base_values=rng.standard_normal(targets).tolist(),
        **nodes,
        **weights_of(rng, leaves, "target", range(targets), False),
    )
    compare(data, inputs(rng, missing))


@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.sampled_from(["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]),
    st.integers(1, 4),
    st.booleans(),
)
def test_trees_of_classes(seed, count, kind, classes, positive):
    rng = np.random.default_rng(seed)
    if classes == 1:  # ONNX Runtime differs from the standard's own runtime in the others
        kind = "NONE" if positive else "LOGISTIC"
    nodes, leaves = random_trees(rng, count, 4, ["BRANCH_LEQ"], False)
    names = max(classes, 2)
    data = model_of(
        "TreeEnsembleClassifier",
        ["n", 4],
        ["INT64", "FLOAT"],
        classlabels_int64s=[3 * n + 1 for n in range(names)] if names > 2 else [0, 1],
        post_transform=kind,
        **nodes,
        **weights_of(rng, leaves, "class", range(classes), positive),
    )
    # ... and of two classes takes the second where its score is above 0.
    compare(data, inputs(rng, False), ["y1"] if classes == 2 else None)


@settings(max_examples=15)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]),
    st.integers(1, 4),
)
def test_linear_classes(seed, kind, rows):
    rng = np.random.default_rng(seed)
    if rows == 1:  # the standard's own runtime, and ONNX Runtime, agree on this one alone
        kind = "LOGISTIC"
    data = model_of(
        "LinearClassifier",
        ["n", 4],
        ["INT64", "FLOAT"],
        coefficients=rng.standard_normal(4 * rows).tolist(),
        intercepts=rng.standard_normal(rows).tolist(),
        classlabels_ints=[5 * n - 2 for n in range(max(rows, 2))],
        post_transform=kind,
    )
    compare(data, inputs(rng, False))


@pytest.mark.parametrize(
    ("kind", "dtype", "x", "output", "attributes"),
    [
        ("LabelEncoder", "INT64", [[1, 2], [3, 9]], "INT64",
         {"keys_int64s": [1, 2, 3], "values_int64s": [7, 8, 9], "default_int64": -4}),
        ("LabelEncoder", "INT64", [1, 9], "FLOAT",
         {"keys_int64s": [1, 2], "values_floats": [0.5, 8.0], "default_float": 2.5}),
        ("LabelEncoder", "FLOAT", [1.0, 2.5, 4.0], "INT64",
         {"keys_floats": [1.0, 2.5], "values_int64s": [5, 6], "default_int64": 0}),
        ("OneHotEncoder", "INT64", [1, 5, 2], "FLOAT", {"cats_int64s": [1, 2, 3], "zeros": 1}),
        ("OneHotEncoder", "INT64", [[1, 3]], "FLOAT", {"cats_int64s": [1, 2, 3], "zeros": 1}),
        ("Imputer", "FLOAT", [[1.0, np.nan], [0.0, 2.0]], "FLOAT",
         {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": float("nan")}),
        ("Imputer", "INT64", [[1, 0], [0, 2]], "INT64",
         {"imputed_value_int64s": [7], "replaced_value_int64": 0}),
        ("Binarizer", "FLOAT", [[1.0, 0.5, -1.0]], "FLOAT", {"threshold": 0.5}),
        ("Scaler", "INT64", [[1, 2], [3, 4]], "FLOAT", {"scale": [2.0], "offset": [1.0]}),
        ("LinearRegressor", "FLOAT", [[1.0, 2.0]], "FLOAT",
         {"coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [1.0, 2.0], "targets": 2}),
    ],
)  # fmt: skip
def test_others(kind, dtype, x, output, attributes):
    array = np.asarray(x, {"FLOAT": "float32", "INT64": "int64"}[dtype])
    compare(model_of(kind, ["n", *array.shape[1:]], [output], dtype, **attributes), array)


TREE = {
    **{"nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0]},
    **{"nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"]},
    **{"nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "n_targets": 1},
    **{"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0]},
    "target_weights": [1.0, 2.0],
}


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("TreeEnsembleRegressor", {"nodes_truenodeids": [0, 0, 0]}, "does not end"),
        ("TreeEnsembleRegressor", {"nodes_truenodeids": [9, 0, 0]}, "leads to none"),
        ("TreeEnsembleRegressor", {"nodes_featureids": [7, 0, 0]}, "features up to 7"),
        ("TreeEnsembleRegressor", {"nodes_featureids": [-1, 0, 0]}, "features up to"),
        ("TreeEnsembleRegressor", {"nodes_values": [0.5]}, "differ in number"),
        ("TreeEnsembleRegressor", {"nodes_nodeids": [0, 1, 1]}, "come twice"),
        ("TreeEnsembleRegressor", {"nodes_modes": ["OTHER", "LEAF", "LEAF"]}, "mode 'OTHER'"),
        ("TreeEnsembleRegressor", {"target_ids": [0, 3]}, "there is not"),
        ("TreeEnsembleRegressor", {"target_ids": [0]}, "differ in number"),
        ("TreeEnsembleRegressor", {"target_nodeids": [1, 8]}, "there is not"),
        ("TreeEnsembleRegressor", {"n_targets": -1}, "results"),
        ("TreeEnsembleRegressor", {"aggregate_function": "PRODUCT"}, "PRODUCT"),
        ("TreeEnsembleRegressor", {"post_transform": "PROBIT"}, "PROBIT"),
        ("TreeEnsembleRegressor", {"base_values": [1.0, 2.0]}, "base values"),
        ("LinearRegressor", {"coefficients": [1.0], "targets": 0}, "coefficients"),
        ("LinearRegressor", {"coefficients": [1.0] * 3, "targets": 2}, "coefficients"),
        ("Scaler", {"scale": [1.0] * 3, "offset": [0.0]}, "scales"),
        ("Normalizer", {"norm": "L3"}, "norm 'L3'"),
    ],
)
def test_models_that_are_damaged(kind, changes, words):
    attributes = TREE | changes if kind == "TreeEnsembleRegressor" else changes
    data = model_of(kind, ["n", 2], ["FLOAT"], **attributes)
    with pytest.raises(ArgumentError, match=words):
        ef.capture.import_onnx(data)
