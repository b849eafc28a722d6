"""The gallery's pages of inference: a posterior against a grid of closed forms, a learnt force against the true one."""

import os
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
G, RADIUS, HEIGHT, SPEED = 9.81, 0.1, 0.8, 6.0


def thrown(restitution, friction, ts):
    """Places (..., k, 2) of the page's ball: parabolas between impacts, each with an impulse within Coulomb's cone, and
    in the end sliding until it rolls."""
    t, x = np.zeros_like(restitution), np.zeros_like(restitution)
    y, up = np.full_like(x, HEIGHT - RADIUS), np.zeros_like(x)
    v, spin = np.full_like(x, SPEED), np.zeros_like(x)
    q = np.full((*x.shape, ts.size, 2), np.nan)
    for _ in range(200):
        flight = (up + np.sqrt(up**2 + 2 * G * y)) / G
        s = ts - t[..., None]
        here = (s >= 0) & (s <= flight[..., None])
        q[..., 0] = np.where(here, x[..., None] + v[..., None] * s, q[..., 0])
        q[..., 1] = np.where(here, RADIUS + y[..., None] + up[..., None] * s - G * s**2 / 2, q[..., 1])
        t, x, y = t + flight, x + v * flight, 0 * y
        falls = G * flight - up
        normal, up = (1 + restitution) * falls, restitution * falls
        # Of a solid ball a tangential impulse changes the slip 1 + 5/2 times as much as the speed.
        along = -np.clip((v + RADIUS * spin) / 3.5, -friction * normal, friction * normal)
        v, spin = v + along, spin + 2.5 * along / RADIUS
    s = np.maximum(ts - t[..., None], 0)
    slip = (v + RADIUS * spin)[..., None]
    slides = np.minimum(s, slip / (3.5 * friction[..., None] * G))
    path = x[..., None] + v[..., None] * s - friction[..., None] * G * (slides * s - slides**2 / 2)
    late = ts >= t[..., None]
    q[..., 0], q[..., 1] = np.where(late, path, q[..., 0]), np.where(late, RADIUS, q[..., 1])
    return q


@pytest.fixture
def page(tmp_path, monkeypatch):
    """page(name): the names that a page defines, after it has run in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "MPLBACKEND", "agg")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield lambda name: runpy.run_path(str(GALLERY / f"{name}.py"))


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_a_posterior_through_impacts_is_that_of_closed_forms(page):
    """Means within a third of a deviation, deviations within 15 %, and the page's own grid likewise."""
    pytest.importorskip("blackjax")
    found = page("posterior")
    truth = np.asarray(found["TRUTH"])
    np.testing.assert_allclose(
        found["places"](found["TRUTH"]), thrown(*truth[:, None], found["TIMES"])[0], atol=1e-6
    )
    e, mu = np.meshgrid(np.linspace(0.56, 0.64, 121), np.linspace(0.112, 0.128, 121), indexing="ij")
    misfit = np.sum((thrown(e, mu, found["TIMES"]) - np.asarray(found["measured"])) ** 2, axis=(-2, -1))
    weights = np.exp(-0.5 * (misfit - misfit.min()) / found["NOISE"] ** 2)
    assert max(weights[0].max(), weights[-1].max(), weights[:, 0].max(), weights[:, -1].max()) < 1e-3
    mean = np.array([np.average(x, weights=weights) for x in (e, mu)])
    deviation = np.sqrt(
        [np.average((x - m) ** 2, weights=weights) for x, m in zip((e, mu), mean, strict=True)]
    )
    assert int(found["divergent"]) == 0
    samples = found["samples"]
    assert np.all(np.abs(samples.mean(axis=0) - mean) < 0.33 * deviation)
    np.testing.assert_allclose(samples.std(axis=0), deviation, rtol=0.15)
    assert np.all(np.abs(found["mean"] - mean) < 0.03 * deviation)
    np.testing.assert_allclose(found["deviation"], deviation, rtol=0.02)
    assert np.all(np.abs(mean - truth) < 4 * deviation)


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_an_unknown_force_and_a_mass_are_found(page):
    """The force within its band where the slider moved, the mass within four deviations, and an unseen motion."""
    found = page("unknown_friction")
    speed = np.asarray(found["speed"])
    seen = np.abs(speed) < 3.0
    off = np.abs(np.asarray(found["force"]) - np.asarray(found["stribeck"](found["speed"])))
    band = np.asarray(found["band"])
    assert np.mean(off[seen] < band[seen]) > 0.8  # of two deviations
    assert np.all(off[seen] < 2.5 * band[seen] + 0.05)
    assert np.max(off[seen]) < 0.6
    assert abs(found["mass"] - found["MASS"]) < 4 * found["deviation"] < 0.05
    assert found["rms"](found["predicted"]) < 0.02 < 0.2 < found["rms"](found["without"])
    # Pins and guide, by the lengths of the model.
    q = np.asarray(found["predicted"])
    pin = 2 * q[:, :2]
    np.testing.assert_allclose(np.linalg.norm(pin, axis=1), 0.5, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(q[:, 6:8] - pin, axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(q[:, 7:], 0.0, atol=1e-9)
    assert jnp.all(jnp.isfinite(found["covariance"]))
