"""Keras's training loop from scratch: gradients, an optimizer and metrics by hand.

As in Keras's guides, the step is written for the backend's library: variables that change where
they are and a tape with eagerflow, a function of the state with JAX.
"""

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

BATCH = 64


def model_of():
    return keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(256, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(10),
        ]
    )


def eagerflow_step(model, optimizer, criterion, metric):
    import eagerflow as ef

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            logits = model(x, training=True)
            loss = criterion(y, logits)
        weights = model.trainable_variables
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        optimizer.apply(gradients, weights)
        metric.update_state(y, logits)
        return loss

    return step


def jax_step(model, optimizer, criterion, metric):
    import jax

    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        optimizer.variables,
        metric.variables,
    )

    def loss_of(weights, rest, x, y):
        logits, rest = model.stateless_call(weights, rest, x, training=True)
        return criterion(y, logits), (rest, logits)

    @jax.jit
    def update(state, x, y):
        weights, rest, slots, seen = state
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, (rest, logits)), gradients = gradient(weights, rest, x, y)
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        seen = metric.stateless_update_state(seen, y, logits)
        return loss, (weights, rest, slots, seen)

    state = [[variable.value for variable in group] for group in groups]

    def step(x, y):
        nonlocal state
        loss, state = update(state, x, y)
        for variable, value in zip(metric.variables, state[-1], strict=True):
            variable.assign(value)
        return loss

    return step


STEPS = {"eagerflow": eagerflow_step, "jax": jax_step}


def main(epochs=8, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    pictures, digits = load_digits(return_X_y=True)
    pictures, digits = (pictures / 16).astype("float32"), digits.astype("int32")
    model, optimizer = model_of(), keras.optimizers.AdamW(1e-3)
    optimizer.build(model.trainable_variables)
    criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseCategoricalAccuracy()
    step = STEPS[keras.config.backend()](model, optimizer, criterion, metric)
    rng, history = np.random.default_rng(0), {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        for callback in callbacks:
            callback.on_epoch_begin(epoch)
        metric.reset_state()
        order, losses = rng.permutation(len(digits)), []
        for i in range(0, len(digits) - BATCH + 1, BATCH):
            chosen = order[i : i + BATCH]
            loss = step(pictures[chosen], digits[chosen])
            losses.append(loss)
            for callback in callbacks:
                callback.on_train_batch_end(i // BATCH, {"loss": loss})
        history["loss"].append(sum(map(float, losses)) / len(losses))
        history["accuracy"].append(float(metric.result()))
        for callback in callbacks:
            callback.on_epoch_end(epoch, {"loss": history["loss"][-1]})
        if verbose:
            print(f"epoch {epoch + 1}: loss {history['loss'][-1]:.4f}")
    return history


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main(verbose=0).items()})
