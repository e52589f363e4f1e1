"""A residual network for digits in mixed precision, trained by ``fit``.

Layers compute in bfloat16, which has the range of float32 and 8 bits of precision, and keep their
weights in float32; the logits are float32 again, so that the loss loses nothing.
"""

import numpy as np

import eagerflow as ef

BATCH, WIDTHS, RATE = 64, (16, 32), 0.05


def load_digits():
    """Images of shape (number, 8, 8, 1) from 0 to 1, and their digits: training and test."""
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    images = (images[order] / 16).reshape(-1, 8, 8, 1).astype("float32")
    return (images[:1500], digits[order][:1500]), (images[1500:], digits[order][1500:])


def residual_block(x, width, strides):
    """Two convolutions, added to their input; a convolution of size 1 where shapes differ."""
    y = ef.nn.Conv2D(width, 3, strides=strides, padding="same", use_bias=False)(x)
    y = ef.relu(ef.nn.BatchNormalization(momentum=0.9)(y))
    y = ef.nn.Conv2D(width, 3, padding="same", use_bias=False)(y)
    y = ef.nn.BatchNormalization(momentum=0.9)(y)
    if x.shape != y.shape:
        x = ef.nn.Conv2D(width, 1, strides=strides, use_bias=False)(x)
        x = ef.nn.BatchNormalization(momentum=0.9)(x)
    return ef.relu(x + y)


def make_model(policy="mixed_bfloat16"):
    """The network from images to logits, with weights that are the same in each run."""
    ef.random.seed(0)
    ef.nn.set_dtype_policy(policy)
    try:
        images = ef.nn.Input((8, 8, 1))
        x = ef.nn.Conv2D(WIDTHS[0], 3, padding="same", use_bias=False)(images)
        x = ef.relu(ef.nn.BatchNormalization(momentum=0.9)(x))
        for width in WIDTHS:
            for strides in (1 if width == WIDTHS[0] else 2, 1):
                x = residual_block(x, width, strides)
        x = ef.nn.GlobalAveragePooling2D()(x)
        logits = ef.nn.Dense(10, dtype="float32")(x)
    finally:
        ef.nn.set_dtype_policy("float32")
    return ef.nn.Model(images, logits)


def batches(images, digits):
    """Batches for ever, each epoch in another order."""
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(len(digits))
        for chosen in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            yield images[chosen], digits[chosen]


def compile_model(model, captured=True):
    """Loss and optimizer; steps are captured unless they are to run op by op."""
    model.compile(
        optimizer=ef.nn.optimizers.SGD(RATE, momentum=0.9, nesterov=True),
        loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        run_eagerly=not captured,
    )
    return model


def training(model, train, captured=True):
    """Train for ever; yields the loss of each step. ``fit`` does the same with epochs."""
    compile_model(model, captured)
    for x, y in batches(*train):
        yield model.train_on_batch(x, y)[0]


def main(steps=138, captured=True, verbose=False):
    """After each batch, the mean loss since the epoch began: what ``fit`` shows."""
    train, test = load_digits()
    model = compile_model(make_model(), captured)
    losses = []
    keep = ef.nn.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: losses.append(logs["loss"])
    )
    epochs = max(steps // 23, 1)
    model.fit(
        batches(*train),
        steps_per_epoch=steps // epochs,
        epochs=epochs,
        validation_data=test if verbose else None,
        callbacks=[keep],
        verbose=2 if verbose else 0,
    )
    return losses


if __name__ == "__main__":
    main(verbose=True)
