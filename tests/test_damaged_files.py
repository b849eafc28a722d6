"""Files with bytes changed, cut, overwritten or put in: each is refused in one sentence, or is what it was."""

import dataclasses
import json
import random
import shutil
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

TIMES = 60


def _trajectory():
    """A run as `simulate` returns it, without the time to compile one."""
    k, n, m = 5, 3, 2
    numbers = iter(np.random.default_rng(0).normal(size=(9, k, n)))
    q, v, a, force, *others = (jnp.asarray(next(numbers)) for _ in range(7))
    return uk.Trajectory(
        jnp.linspace(0.0, 0.4, k), q, v, a, force, *(x[:, :m] for x in others), jnp.ones(k), jnp.full(k, 2),
        {"num_steps": jnp.asarray(7)}, uk.RESULTS.successful, ("rod", "wheel"), ("holonomic", "nonholonomic"),
        name="cart",
    )  # fmt: skip


RUN = _trajectory()


def _damaged(content: bytes, chance: random.Random) -> bytes:
    content, kind = bytearray(content), chance.randrange(5)
    place = chance.randrange(len(content))
    size = min(chance.randrange(1, 2_000), len(content) - place)
    match kind:
        case 0:
            content[place] ^= 1 << chance.randrange(8)
        case 1:
            for _ in range(10):
                content[chance.randrange(len(content))] = chance.randrange(256)
        case 2:
            del content[place:]
        case 3:
            content[place : place + size] = chance.randbytes(size)
        case _:
            content[place:place] = chance.randbytes(20)
    return bytes(content)


def _same(found: uk.Trajectory) -> bool:
    arrays = [
        x.name for x in dataclasses.fields(uk.Trajectory) if isinstance(getattr(RUN, x.name), jax.Array)
    ]
    return found.summary() == RUN.summary() and all(
        np.array_equal(getattr(found, name), getattr(RUN, name)) for name in arrays
    )


def _refused_or_same(path: Path) -> bool:
    """Whether it is refused; if not, it must be as it was."""
    said = ""
    try:
        found = uk.Trajectory.load(path)
    except uk.InputError as error:
        said = str(error)
    else:
        assert _same(found)
    assert not said or path.name in said
    assert "\n" not in said
    return bool(said)


@pytest.mark.parametrize("suffix", ["npz", "nc"])
def test_damaged_trajectories(suffix, tmp_path):
    whole = RUN.save(tmp_path / f"run.{suffix}")
    assert not _refused_or_same(whole)
    content, path, chance = whole.read_bytes(), tmp_path / f"damaged.{suffix}", random.Random(suffix)
    refused = 0
    for _ in range(TIMES):
        path.write_bytes(_damaged(content, chance))
        refused += _refused_or_same(path)
    assert refused > TIMES / 2


def test_damaged_folders(tmp_path):
    whole, path, chance = RUN.save(tmp_path / "run.zarr"), tmp_path / "damaged.zarr", random.Random(0)
    assert not _refused_or_same(whole)
    files = sorted(x.relative_to(whole) for x in whole.rglob("*") if x.is_file())
    for _ in range(20):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        file = path / chance.choice(files)
        file.write_bytes(_damaged(file.read_bytes(), chance))
        assert _refused_or_same(path)


def test_damaged_exports(tmp_path):
    """One without a checksum, as of earlier versions, is still read."""
    pytest.importorskip("flatbuffers")
    whole, path = uk.export(lambda x: jnp.sin(x) + 1, tmp_path / "whole", jnp.ones(3)), tmp_path / "damaged"
    chance, content = random.Random(0), whole.read_bytes()
    for _ in range(TIMES):
        path.write_bytes(_damaged(content, chance))
        with pytest.raises(uk.InputError, match="damaged"):
            uk.load_exported(path)
    path.write_bytes(
        bytes(jax.export.export(jax.jit(jnp.cos))(jax.ShapeDtypeStruct((3,), float)).serialize())
    )
    for file, expected in ((whole, np.sin(0.5) + 1), (path, np.cos(0.5))):
        run = uk.load_exported(file)
        np.testing.assert_allclose(run(jnp.full(3, 0.5)), np.full(3, expected))
        for wrong in ((), (jnp.ones(2),), (jnp.ones(3, "float32"),), ("x",), (jnp.ones(3), jnp.ones(3))):
            with pytest.raises(uk.InputError, match=r"takes 1 arrays, float64 \(3,\)"):
                run(*wrong)


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr"])
def test_files_without_checksums_are_read(suffix, tmp_path):
    """Such as of earlier versions, and those that other programs wrote from what they had read."""
    import xarray

    path = tmp_path / f"run.{suffix}"
    if suffix == "npz":
        with np.load(RUN.save(tmp_path / "other.npz")) as file:
            np.savez(path, **file)
    else:
        dataset = RUN.to_xarray()
        dataset.to_netcdf(path, engine="h5netcdf") if suffix == "nc" else dataset.to_zarr(
            path, consolidated=False
        )
    assert not _refused_or_same(path)
    if suffix != "npz":
        saved = RUN.save(tmp_path / f"saved.{suffix}")
        opened = xarray.open_dataset(saved) if suffix == "nc" else xarray.open_zarr(saved, consolidated=False)
        with opened:
            np.testing.assert_array_equal(opened.q, RUN.q)


@pytest.fixture
def little_room():
    """This process cannot make files of more bytes, as where a disk is full."""
    resource = pytest.importorskip("resource")
    usual, kept = resource.getrlimit(resource.RLIMIT_FSIZE), "jax_persistent_cache_min_compile_time_secs"
    before = jax.config.values[kept]
    jax.config.update(kept, 1e9)  # JAX would leave half files in the cache of the tests
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, usual[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    jax.config.update(kept, before)


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr", "csv"])
def test_a_full_disk(suffix, tmp_path, little_room):
    """One sentence, the run is still there, and so is what was there before."""
    path = tmp_path / f"run.{suffix}"
    with pytest.raises(uk.InputError, match=rf"run\.{suffix}' cannot be written: .*File too large"):
        RUN.save(path)
    assert not list(tmp_path.iterdir())
    if suffix == "csv":  # not read again
        return
    import resource

    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    RUN.save(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    with pytest.raises(uk.InputError, match="cannot be written"):
        RUN.save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert not _refused_or_same(path)


@pytest.mark.slow
def test_pages_and_animations_on_a_full_disk(tmp_path, little_room):
    plane = {name: getattr(RUN, name)[:, :2] for name in ("q", "v", "a", "constraint_force")}
    own = dataclasses.replace(RUN, **plane).with_problem(uk.models.pendulum())
    for name, write in (("run.html", own.save), ("run.gif", own.animate)):
        with pytest.raises(uk.InputError, match=f"{name}' cannot be written"):
            write(tmp_path / name)
        assert not list(tmp_path.iterdir())


def test_a_sweep_on_a_full_disk(tmp_path, little_room):
    with pytest.raises(uk.InputError, match=r"runs.zarr' cannot be written"):
        uk.sweep(lambda x: {"y": x}, {"x": np.linspace(0.0, 1.0, 2000)}, store=tmp_path / "runs.zarr")
    assert not list(tmp_path.iterdir())


def _npz(path: Path, change):
    """The file with another header, columns left out, or put in."""
    with np.load(RUN.save(path)) as file:
        arrays = dict(file)
    header = json.loads(str(arrays.pop("header")))
    found = change(header, arrays)
    header = header if found is None else found
    np.savez(path, header=np.array(header if isinstance(header, str) else json.dumps(header)), **arrays)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, arrays: header.pop("labels"),
        lambda header, arrays: header.pop("columns"),
        lambda header, arrays: "no JSON",
        lambda header, arrays: [1, 2],
        lambda header, arrays: header["labels"].update(row=["rod"]),
        lambda header, arrays: header["labels"].update(row=3),
        lambda header, arrays: header["labels"].update(row_kind=[1, 2]),
        lambda header, arrays: header["attributes"].update(result="well"),
        lambda header, arrays: header["attributes"].update(model=3),
        lambda header, arrays: header["attributes"].update(num_steps="many"),
        lambda header, arrays: header["attributes"].pop("message"),
        lambda header, arrays: header["attributes"].pop("num_steps"),
        lambda header, arrays: header["columns"].pop("q"),
        lambda header, arrays: header["columns"].update(q=3),
        lambda header, arrays: arrays.pop("rank"),
        lambda header, arrays: arrays.update(q=np.array(["a"])),
        lambda header, arrays: arrays.update(q=np.ones(5)),
        lambda header, arrays: arrays.update(q=np.ones((4, 3))),
        lambda header, arrays: arrays.update(v=np.ones((5, 3), complex)),
    ],
)
def test_contents_of_another_kind(change, tmp_path):
    path = tmp_path / "run.npz"

    def changed(header, arrays):
        found = change(header, arrays)
        return found if isinstance(found, str | list) and found in ("no JSON", [1, 2]) else None

    _npz(path, changed)
    with pytest.raises(uk.InputError, match=r"run.npz' was not written by ukjax"):
        uk.Trajectory.load(path)


def test_a_file_is_no_bomb(tmp_path):
    """A header that tells of more than there is makes no array of that size."""
    path = tmp_path / "run.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.npy", b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, "
                      b"'shape': (1000000000000000,), }".ljust(77) + b"\n")  # fmt: skip
    with pytest.raises(uk.InputError, match="was not written by ukjax"):
        uk.Trajectory.load(path)
