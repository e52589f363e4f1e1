"""Keras's time series: the next hour's temperature from the last two days, by an LSTM.

The weather is made here: a year of hours with seasons, days, fronts that come and go, and noise.
"""

import keras
import numpy as np
from keras import layers

HOURS, PAST = 24 * 365, 48


def weather():
    """Temperature, pressure and wind of each hour, in units of their spread."""
    rng = np.random.default_rng(0)
    hours = np.arange(HOURS)
    front = np.zeros(HOURS)
    for i in range(1, HOURS):
        front[i] = 0.98 * front[i - 1] + 0.2 * rng.standard_normal()
    temperature = (
        1.2 * np.sin(2 * np.pi * hours / HOURS - 1.5)
        + 0.5 * np.sin(2 * np.pi * hours / 24 - 2)
        + 0.6 * front
        + 0.05 * rng.standard_normal(HOURS)
    )
    pressure = -0.8 * np.roll(front, -6) + 0.1 * rng.standard_normal(HOURS)
    wind = np.abs(np.gradient(front)) + 0.1 * np.abs(rng.standard_normal(HOURS))
    table = np.stack([temperature, pressure, wind], axis=1)
    return ((table - table.mean(0)) / table.std(0)).astype("float32")


def main(epochs=6, callbacks=(), verbose="auto"):
    keras.utils.set_random_seed(0)
    table = weather()
    windows = np.lib.stride_tricks.sliding_window_view(table[:-1], PAST, axis=0)
    windows, after = windows.transpose(0, 2, 1)[::2].copy(), table[PAST:, :1][::2].copy()
    kept = len(windows) * 4 // 5
    inputs = keras.Input((PAST, table.shape[1]))
    x = layers.LSTM(32, return_sequences=True)(inputs)
    x = layers.LSTM(32)(x)
    model = keras.Model(inputs, layers.Dense(1)(x), name="forecast")
    model.compile(keras.optimizers.Adam(2e-3, clipnorm=1.0), loss="mse", metrics=["mae"])
    return model.fit(
        windows[:kept],
        after[:kept],
        validation_data=(windows[kept:], after[kept:]),
        batch_size=64,
        epochs=epochs,
        callbacks=list(callbacks),
        verbose=verbose,
    ).history


if __name__ == "__main__":
    print({name: round(values[-1], 4) for name, values in main().items()})
