# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A loop of your own: two networks that compete
#
# `fit` lets one optimizer make one loss small. A generative adversarial network (Goodfellow et al.
# 2014, https://arxiv.org/abs/1406.2661) needs two of each, so its loop is written by hand: a tape
# for each network, and `ef.function` around the step. It needs `pip install "eagerflow[plot]"`, no
# GPU and no download.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import eagerflow as ef

# %% [markdown]
# ## What is to be learned
#
# Points in the plane along a spiral, with some noise. The generator never sees one of them.

# %%
rng = np.random.default_rng(0)


def spiral(count):
    angle = rng.uniform(0.5, 3.5, count) * np.pi
    radius = angle / (3.5 * np.pi)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return (points + 0.02 * rng.standard_normal(points.shape)).astype("float32")


real = spiral(4000)

# %% [markdown]
# ## Two networks
#
# The generator makes points of random numbers. The critic gives a logit for each point: how sure it
# is that the point is real.

# %%
ef.random.seed(0)
NOISE = 4
generator = ef.nn.Sequential(
    [
        ef.nn.Input((NOISE,)),
        ef.nn.Dense(64, "relu"),
        ef.nn.Dense(64, "relu"),
        ef.nn.Dense(2),
    ],
    name="generator",
)
critic = ef.nn.Sequential(
    [
        ef.nn.Input((2,)),
        ef.nn.Dense(64, "leaky_relu"),
        ef.nn.Dense(64, "leaky_relu"),
        ef.nn.Dense(1),
    ],
    name="critic",
)
generator_optimizer = ef.nn.optimizers.Adam(1e-3, beta_1=0.5)
critic_optimizer = ef.nn.optimizers.Adam(2e-3, beta_1=0.5)

# %% [markdown]
# ## One step
#
# The critic learns to tell real points from made ones; the generator learns to be taken for real.
# Both losses come from one pass, so the tape is asked twice and has to be persistent. A gradient is
# asked only for the weights that its optimizer moves: the generator's loss runs through the critic
# and leaves it alone.


# %%
def step(points):
    noise = ef.random.normal((points.shape[0], NOISE))
    with ef.GradientTape(persistent=True) as tape:
        made = generator(noise, training=True)
        on_real, on_made = critic(points, training=True), critic(made, training=True)
        critic_loss = ef.mean(ef.softplus(-on_real)) + ef.mean(ef.softplus(on_made))
        generator_loss = ef.mean(ef.softplus(-on_made))
    for loss, network, optimizer in (
        (critic_loss, critic, critic_optimizer),
        (generator_loss, generator, generator_optimizer),
    ):
        weights = network.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
    return critic_loss, generator_loss


# %% [markdown]
# `ef.function` captures it: the first call traces both networks, both gradients and both optimizers
# into one graph, the others replay that.

# %%
captured_step = ef.function(step)


def milliseconds(step, points, runs=50):
    step(points)
    begin = time.perf_counter()
    for _ in range(runs):
        step(points)
    return (time.perf_counter() - begin) / runs * 1e3


batch = ef.tensor(real[:256])
print(f"eager    {milliseconds(step, batch):.2f} ms a step")
print(f"captured {milliseconds(captured_step, batch):.2f} ms a step")
print(captured_step.explain())

# %% [markdown]
# ## The loop
#
# Each step takes other real points and other random numbers. Now and then a picture is kept.

# %%
STEPS, PICTURES = 5000, 4
losses, pictures = [], []
for count in range(1, STEPS + 1):
    losses.append(captured_step(ef.tensor(real[rng.integers(len(real), size=256)])))
    if count % (STEPS // PICTURES) == 0:
        pictures.append((count, generator(ef.random.normal((1000, NOISE))).numpy()))
        print(
            f"step {count}: critic {losses[-1][0].item():.3f}, generator {losses[-1][1].item():.3f}"
        )

# %% [markdown]
# Such losses do not fall to zero, and tell little of how good the points are. Where nobody can tell
# real from made, the critic answers 0 everywhere: its loss is then 2 log 2 = 1.386, the generator's
# log 2 = 0.693.

# %%
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
curves = np.array([[loss.item() for loss in pair] for pair in losses])
means = curves.reshape(-1, 50, 2).mean(axis=1)
axes.plot(np.arange(50, STEPS + 1, 50), means, label=["critic", "generator"])
axes.axhline(2 * np.log(2), color="gray", linewidth=0.8, linestyle="--")
axes.axhline(np.log(2), color="gray", linewidth=0.8, linestyle="--")
axes.set(
    xlabel="step", ylabel="loss, mean of 50 steps", title="dashed: nobody can tell real from made"
)
legend = axes.legend()

# %% [markdown]
# ## What was learned

# %%
figure, columns = plt.subplots(
    1, PICTURES + 1, figsize=(12, 2.8), sharex=True, sharey=True, layout="constrained"
)
titles = ["real", *(f"step {count}" for count, _ in pictures)]
for axes, title, points in zip(
    columns, titles, [real[:1000], *(points for _, points in pictures)], strict=True
):
    axes.scatter(*points.T, s=2, color="C0" if title == "real" else "C1")
    axes.set(title=title, xlim=(-1.2, 1.1), ylim=(-1.3, 1.0), aspect="equal")

# %% [markdown]
# In numbers: how many of the made points lie near the spiral, and how much of the spiral has a made
# point near it.


# %%
def near(points, others, distance=0.08):
    gaps = np.linalg.norm(points[:, None] - others[None], axis=-1)
    return (gaps.min(axis=1) < distance).mean()


made = pictures[-1][1]
on_spiral, covered = near(made, real), near(real[:1000], made)
print(f"{on_spiral:.0%} of the made points lie near the spiral, {covered:.0%} of it is covered")
assert on_spiral > 0.75 and covered > 0.75
