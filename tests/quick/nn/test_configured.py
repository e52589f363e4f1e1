"""Constructors whose bodies are derived: signatures, attributes, configurations, types, errors."""

import copy
import inspect
import pickle
import subprocess
import sys
from typing import Annotated, Unpack, get_args, get_type_hints

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import initializers, losses, metrics, optimizers, schedules
from eagerflow.nn.arguments import Count, choice, count, number
from eagerflow.nn.configured import Configured, arguments, named_classes
from eagerflow.nn.layers.core import KernelOptions

Factor = Annotated[float, number(lambda x: x > 0, "not a factor", "a positive number")]


class Scaled(ef.nn.Dense):
    """A layer of a user's, with arguments beside those of its base."""

    @arguments
    def __init__(
        self,
        units: Count,
        factor: Factor = 2.0,
        activation: str = "relu",
        **options: Unpack[KernelOptions],
    ) -> None:
        assert isinstance(self.factor, float)
        self.square = self.factor**2
        self.given = factor

    def call(self, inputs):
        return super().call(inputs) * self.square


class Window(Configured):
    """An object of a user's, with an argument that may be None."""

    @arguments
    def __init__(self, width: Count | None = None, *, label: Annotated[str, "as shown"] = "w"):
        self.area = None if self.width is None else self.width**2


def names(cls):
    return list(inspect.signature(cls).parameters)


def test_signatures_list_every_argument_in_keras_order():
    common = ["name", "dtype", "trainable", "activity_regularizer"]
    weighted = ["activation", "use_bias", "kernel_initializer", "bias_initializer"]
    weighted += ["kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint"]
    assert names(ef.nn.Dense) == ["units", *weighted, *common]
    own = "filters kernel_size strides padding data_format dilation_rate groups"
    assert names(ef.nn.Conv2D)[:7] == own.split()
    assert names(ef.nn.Flatten) == ["data_format", *common]
    assert names(losses.Huber) == ["delta", "reduction", "name", "dtype"]
    assert names(metrics.BinaryAccuracy) == ["name", "dtype", "threshold"]
    assert names(initializers.TruncatedNormal) == ["mean", "stddev", "seed"]
    last = ["clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum"]
    last += ["ema_overwrite_frequency", "loss_scale_factor", "gradient_accumulation_steps", "name"]
    own = ["beta_1", "beta_2", "epsilon", "amsgrad"]
    assert names(optimizers.Adam) == ["learning_rate", *own, "weight_decay", *last]
    assert names(optimizers.AdamW) == ["learning_rate", "weight_decay", *own, *last]
    default = inspect.signature(optimizers.AdamW).parameters["weight_decay"]
    assert (default.default, default.annotation) == (0.004, "float")
    assert names(ef.nn.Dense.__init__)[0] == "self"
    assert names(ef.nn.Dense(2))[0] == "inputs"  # of an object, it is that of a call


def test_a_class_changes_places_and_defaults_of_its_base():
    assert names(Scaled)[:4] == ["units", "factor", "activation", "use_bias"]
    layer = Scaled(2, 3.0, kernel_initializer="ones", name="s")
    assert (layer.square, layer.units, layer.activation) == (9.0, 2, ef.relu)
    assert (Scaled(2, 3).factor, type(Scaled(2, 3).given)) == (3.0, int)
    assert layer(ef.ones((1, 4))).tolist() == [[36.0, 36.0]]
    again = Scaled.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert layer.get_config()["activation"] == "relu"


def test_a_constructor_of_a_users_own_calls_that_of_its_base():
    class Wide(ef.nn.Dense):
        def __init__(self, width=3, **options):
            super().__init__(width * 2, "tanh", **options)

    assert names(Wide) == ["width", "options"]
    layer = Wide(2, name="wide", use_bias=False)
    assert (layer.units, layer.use_bias, layer.name) == (4, False, "wide")
    assert layer.get_config() == {"name": "wide", "width": 2, "use_bias": False}
    assert Wide.from_config(layer.get_config()).units == 4


def test_base_arguments_are_omitted_without_options():
    class Narrow(ef.nn.Dense):
        @arguments
        def __init__(self, units: Count, label: str = "n"):
            pass

    assert names(Narrow) == ["units", "label"]
    layer = Narrow(2)
    assert (layer.units, layer.label, layer.use_bias) == (2, "n", True)
    assert layer.get_config() == {"name": layer.name, "units": 2, "label": "n"}


def test_options_of_a_base_with_any_keywords_are_passed_on():
    class Wide(ef.nn.Dense):
        def __init__(self, width=3, **options):
            super().__init__(width * 2, **options)

    class Wider(Wide):
        @arguments
        def __init__(self, extra: Count = 1, **options: Unpack[KernelOptions]):
            self.total = self.units + self.extra

    assert names(Wider) == ["extra", "width", "options"]
    layer = Wider(4, 2, use_bias=False)
    assert (layer.total, layer.use_bias) == (8, False)


def test_optional_arguments_are_checked_unless_none():
    assert (Window().area, Window(3).area, Window(label="x").label) == (None, 9, "x")
    with pytest.raises(ef.errors.ArgumentError, match="Window: width: 0 is out of range"):
        Window(0)
    with pytest.raises(TypeError, match="Window\\(\\) too many positional arguments"):
        Window(1, "x")


def all_classes(base=Configured):
    """The classes of the package, whose help lists their arguments."""
    for cls in base.__subclasses__():
        kinds = {parameter.kind for parameter in inspect.signature(cls).parameters.values()}
        if cls.__module__.startswith("eagerflow.") and inspect.Parameter.VAR_KEYWORD not in kinds:
            yield cls
        yield from all_classes(cls)


def written(cls):
    """The arguments that the source of a class shows: parameters, and the keys of its options."""
    init = getattr(cls.__init__, "__wrapped__", cls.__init__)
    found = names(init)[1:]
    hints = get_type_hints(init, include_extras=True)
    for parameter in inspect.signature(init).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found.remove(parameter.name)
            found += get_type_hints(get_args(hints[parameter.name])[0])
    return found


@pytest.mark.parametrize("cls", sorted(set(all_classes()), key=str), ids=lambda cls: cls.__name__)
def test_the_source_shows_every_argument(cls):
    assert sorted(written(cls)) == sorted(names(cls))


TYPED = """
from eagerflow.nn import Conv2D, Dense
from eagerflow.nn.initializers import TruncatedNormal
from eagerflow.nn.optimizers import AdamW

reveal_type(Dense(2, "relu", name="d", bias_initializer="ones").units)
Conv2D(2, (3, 3), padding="same", groups=2)
TruncatedNormal(0.0, 0.1, 3)
AdamW(0.01, beta_1=0.8, clipnorm=1.0)
Dense()
Dense("two")
Conv2D(2, 3, colour=1)
AdamW(clipnorm="x")
"""


@pytest.mark.soak
def test_a_checker_of_types_knows_the_constructors(tmp_path):
    """What is right passes, and each line after these has its error."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    own = ["--cache-dir", str(tmp_path), "--config-file", ""]
    rest = ["--follow-imports=silent", "--ignore-missing-imports", "-c", TYPED]
    # A process of its own: mypy changes how often this one would collect garbage.
    command = [sys.executable, "-m", "mypy", *own, *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.partition(":")[2] for line in done.stdout.splitlines()[:-1]]
    found = [line for line in lines if " defined in " not in line]
    assert found == [
        '6: note: Revealed type is "int"',
        '10: error: Missing positional argument "units" in call to "Dense"  [call-arg]',
        '11: error: Argument 1 to "Dense" has incompatible type "str"; expected "int"  [arg-type]',
        '12: error: Unexpected keyword argument "colour" for "Conv2D"  [call-arg]',
        '13: error: Argument "clipnorm" to "AdamW" has incompatible type "str"; '
        'expected "float | None"  [arg-type]',
    ]


def test_copies_keep_the_configuration():
    for made in (ef.nn.Conv2D(4, 3), optimizers.SGD(0.5, momentum=0.5), losses.Huber(2.0)):
        for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert again.get_config() == made.get_config()


def test_names_of_classes_are_in_snake_case():
    found = named_classes(schedules.Schedule, short=schedules.CosineDecay)
    wanted = "cosine_decay cosine_decay_restarts exponential_decay inverse_time_decay "
    wanted += "linear_warmup piecewise_constant_decay polynomial_decay short"
    assert sorted(found) == wanted.split()
    assert isinstance(initializers.get("he_normal"), initializers.HeNormal)
    assert isinstance(metrics.get("mse"), metrics.MeanSquaredError)
    assert isinstance(optimizers.get("adam_w"), optimizers.AdamW)


def test_checks():
    assert (count(np.int64(3)), type(count(np.int64(3)))) == (3, int)
    assert choice("not a mode", "a", "b")("b") == "b"
    assert number(lambda x: x < 1, "large")(np.float32(0.5)) == 0.5


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: ef.nn.Dense(), TypeError, r"Dense\(\) missing a required argument: 'units'"),
    (lambda: losses.Huber(1, "sum", "h", None, 4), TypeError, r"Huber\(\) too many positional"),
    (lambda: Scaled(1, colour=3), TypeError, "Scaled: there is no argument 'colour'"),
    (lambda: Scaled(2, -1, name="s"), ef.errors.ArgumentError, "Scaled 's': factor: -1 is not"),
    (lambda: Scaled(0, name="s"), ef.errors.ArgumentError, "Scaled 's': units: 0 is out"),
    (lambda: Scaled(2, 1, "rellu"), ef.errors.ArgumentError, "activation: there is no 'rell"),
    (lambda: optimizers.SGD(momentum="x"), ef.errors.ArgumentError, "sgd: momentum: 'x' is"),
    (lambda: ef.nn.MaxPooling2D(2, strides=0), ef.errors.ArgumentError, "strides: 0 is out"),
    (lambda: count(True), ef.errors.ArgumentError, "True is out of range"),
    (lambda: count(1.0), ef.errors.ArgumentError, "an integer of at least 1"),
    (lambda: initializers.VarianceScaling(mode="fan"), ef.errors.ArgumentError,
     "VarianceScaling: mode: 'fan' is not a choice\n  expected: one of 'fan_in', "),
])  # fmt: skip
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
