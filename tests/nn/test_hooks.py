"""Hooks of layers: what they see and replace, eager, captured, differentiated, copied."""

import copy
import pickle

import numpy as np
import pytest

import eagerflow as ef

nn = ef.nn
X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


def made():
    ef.random.seed(1)
    return nn.Sequential([nn.Input((4,)), nn.Dense(3, activation="tanh"), nn.Dense(2)])


def doubled(layer, args, outputs):
    return outputs * 2


def negated(layer, args):
    return -args[0]


def test_hooks_see_layer_arguments_and_outputs():
    model, met = made(), []
    first = model.layers[-2]
    first.add_hook(lambda layer, args: met.append((layer, args)))
    first.add_hook(after=lambda layer, args, y: met.append((layer, args, y)))
    plain = made()(X)
    np.testing.assert_array_equal(model(X), plain)
    assert [len(x) for x in met] == [2, 3] and all(x[0] is first for x in met)
    np.testing.assert_array_equal(met[0][1][0], X)
    np.testing.assert_array_equal(met[1][2], made().layers[-2](X))


def test_hooks_equal_those_of_pytorch():
    torch = pytest.importorskip("torch")
    model = made()
    kernel, bias = (torch.tensor(x) for x in model.layers[-1].get_weights())
    theirs = torch.nn.Linear(3, 2)
    theirs.weight.data, theirs.bias.data = kernel.T.contiguous(), bias
    ours = model.layers[-1]
    x = np.float32([[1.0, -2.0, 0.5]])
    for add_before, add_after in [
        (ours.add_hook, lambda f: ours.add_hook(after=f)),
        (theirs.register_forward_pre_hook, theirs.register_forward_hook),
    ]:
        add_before(lambda layer, args: args[0] + 1)
        add_before(lambda layer, args: (args[0] * 3,))
        add_after(lambda layer, args, y: y * args[0].sum())
        add_after(lambda layer, args, y: None)
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(x), expected, rtol=1e-6)


def test_gradients_pass_through_hooks():
    model = made()
    plain = ef.grad(lambda x: model(x).sum())(X)
    model.layers[-1].add_hook(after=doubled)
    np.testing.assert_allclose(ef.grad(lambda x: model(x).sum())(X), 2 * plain.numpy(), rtol=1e-6)


def test_a_change_of_hooks_is_traced_again():
    model = made()
    captured = ef.function(lambda x: model(x))
    plain = model(X).numpy()
    np.testing.assert_allclose(captured(X), plain, rtol=1e-6)
    with model.layers[-1].add_hook(after=doubled):
        np.testing.assert_allclose(captured(X), 2 * plain, rtol=1e-6)
        np.testing.assert_allclose(model.predict(X, verbose=0), 2 * plain, rtol=1e-6)
        second = model.layers[-1].add_hook(after=doubled)
        np.testing.assert_allclose(captured(X), 4 * plain, rtol=1e-6)
    np.testing.assert_allclose(captured(X), 2 * plain, rtol=1e-6)
    second.remove()
    second.remove()
    np.testing.assert_allclose(captured(X), plain, rtol=1e-6)
    np.testing.assert_allclose(model.predict(X, verbose=0), plain, rtol=1e-6)
    assert "call" not in vars(model.layers[-1])


def test_fit_trains_through_hooks():
    hooked, scaled = made(), made()
    hooked.layers[-1].add_hook(after=doubled)
    x = nn.Input((4,))
    scaled = nn.Model(x, scaled(x) * 2.0)
    for model in (hooked, scaled):
        model.compile(nn.optimizers.SGD(0.1), "mse")
        model.fit(X, X[:, :2], epochs=3, verbose=0, shuffle=False)
    for one, other in zip(hooked.get_weights(), scaled.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_values_that_hooks_keep_in_captured_code_are_an_error():
    model, kept = made(), []
    model.layers[-1].add_hook(after=lambda layer, args, y: kept.append(y))
    model(X)
    assert len(kept) == 1
    with pytest.raises(ef.errors.CaptureError, match="kept outside"):
        model.predict(X, verbose=0)


def test_hooks_get_the_training_and_masks_of_the_call_untouched():
    layer = nn.Dropout(0.5)
    layer.add_hook(negated)
    np.testing.assert_array_equal(layer(X), -X)
    assert (layer(X, training=True).numpy() == 0).any()
    recurrent = nn.LSTM(2)
    ids = np.array([[1, 2, 0], [3, 0, 0]])
    embedded = nn.Embedding(5, 4, mask_zero=True)(ids)
    plain = recurrent(embedded).numpy()
    recurrent.add_hook(after=doubled)
    np.testing.assert_allclose(recurrent(embedded), 2 * plain, rtol=1e-6)


class Sum(nn.Model):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, kernel_initializer="ones")

    @ef.function
    def call(self, x, y):
        return self.dense(x) + y


def test_models_of_users_with_several_arguments():
    model = Sum()
    plain = model(X, 1.0).numpy()
    model.add_hook(lambda layer, args: (args[0], args[1] + 1.0), doubled)
    np.testing.assert_allclose(model(X, 1.0), 2 * (plain + 1), rtol=1e-6)


def test_before_the_first_call():
    layer = nn.Dense(3, kernel_initializer="ones")
    layer.add_hook(lambda layer, args: args[0][:, :4])
    assert layer(X).shape == (3, 3)


def test_an_attribute_in_place_of_the_method_is_kept():
    layer = nn.Dense(2)
    plain = layer(X).numpy()
    layer.call = lambda x: ef.zeros((1,)) + 3.0
    with layer.add_hook(after=doubled):
        assert layer(X).tolist() == [6.0]
    assert layer(X).tolist() == [3.0]
    del layer.call
    np.testing.assert_array_equal(layer(X), plain)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_hooks_of_their_own(how):
    layer = nn.Dense(2)
    plain = layer(X).numpy()
    hook = layer.add_hook(negated, doubled)
    again = how(layer)
    expected = layer(X).numpy()
    hook.remove()
    np.testing.assert_array_equal(layer(X), plain)
    np.testing.assert_array_equal(again(X), expected)
    again.set_weights([w * 0 for w in again.get_weights()])
    assert not again(X).numpy().any() and layer(X).numpy().any()


def test_files_and_clones_have_no_hooks(tmp_path):
    model = made()
    plain = model(X).numpy()
    model.layers[-1].add_hook(after=doubled)
    model.save(tmp_path / "model.ef")
    np.testing.assert_allclose(nn.load_model(tmp_path / "model.ef")(X), plain, rtol=1e-6)
    clone = nn.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(clone(X), plain, rtol=1e-6)


@pytest.mark.parametrize(
    ("args", "words"),
    [((), "before: None is not a hook"), ((3,), "before: 3 is not a function")],
)
def test_errors(args, words):
    with pytest.raises(ef.errors.ArgumentError, match=words):
        nn.Dense(2).add_hook(*args)


def test_errors_of_hooks_name_the_layer():
    layer = nn.Dense(2, name="mine")
    layer.add_hook(lambda layer, args: args[5])
    with pytest.raises(IndexError) as raised:
        layer(X)
    assert any("mine" in note for note in raised.value.__notes__)
