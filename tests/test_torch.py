"""The PyTorch bridge: against PyTorch's own finite differences and operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._interop._torch import _as_array

torch = pytest.importorskip("torch")


def _tensor(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).requires_grad_()


def _mixed(x, y, k):
    return {"product": jnp.sin(x) @ y, "picked": x[k], "rounded": jnp.round(x).astype(int)}


def test_values_and_derivatives_of_both_orders():
    bridge = uk.to_torch(_mixed)
    x, y, k = _tensor(3, 2), _tensor(2, 4, seed=1), torch.tensor(1)
    out = bridge(x, y, k)
    torch.testing.assert_close(out["product"], torch.sin(x) @ y)
    torch.testing.assert_close(out["picked"], x[1])
    assert out["rounded"].tolist() == torch.round(x).tolist()
    assert not out["rounded"].requires_grad
    both = lambda x, y: tuple(bridge(x, y, k)[name] for name in ("product", "picked"))
    assert torch.autograd.gradcheck(both, (x, y))
    assert torch.autograd.gradgradcheck(both, (x, y))


def test_a_step_of_a_mechanism():
    def height(length, rate):
        problem = uk.models.pendulum(length=length, rate=rate)
        q, v = uk.step(problem, 0.0, problem.q0, problem.v0, 0.05)
        return q[1], problem.system.energy(0.05, q, v)

    length, rate = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (1.1, 0.7))
    assert torch.autograd.gradcheck(uk.to_torch(height), (length, rate))


def test_memory_is_shared_and_inputs_are_safe():
    x = torch.arange(64.0, dtype=torch.float64)
    if x.data_ptr() % 64 == 0:
        assert _as_array(x).unsafe_buffer_pointer() == x.data_ptr()
    np.testing.assert_array_equal(_as_array(x[1::2]), np.arange(1.0, 64.0, 2.0))
    same = uk.to_torch(lambda x: x)(x)
    same += 1.0
    assert float(x[0]) == 0.0


def test_layers_on_both_sides_are_trained():
    """A linear layer before and after the bridge; the gradient is that of the same network all in PyTorch."""
    torch.manual_seed(0)
    first, last = torch.nn.Linear(3, 4).double(), torch.nn.Linear(4, 1).double()
    x = _tensor(5, 3)
    found = []
    for middle in (uk.to_torch(jnp.tanh), torch.tanh):
        first.zero_grad()
        last(middle(first(x))).square().sum().backward()
        found.append(first.weight.grad.clone())
    torch.testing.assert_close(*found)


def test_what_cannot_be_meant_says_so():
    with pytest.raises(uk.InputError, match="expected tensors, got float"):
        uk.to_torch(jnp.sin)(1.0)
    for tensor, kind in (
        (torch.eye(2).to_sparse(), "a sparse_coo one"),
        (torch.eye(2).to_sparse_csr(), "a sparse_csr one"),
        (torch.ones(2, device="meta"), "one without values"),
    ):
        with pytest.raises(uk.InputError, match=f"expected dense tensors, got {kind}"):
            uk.to_torch(jnp.sin)(tensor)
    for function in ("text", None):
        with pytest.raises(uk.InputError, match="to_torch takes a function"):
            uk.to_torch(function)
    with pytest.raises(uk.InputError, match=r"must be a function of 1 argument; this one takes \(x, y\)"):
        uk.to_torch(lambda x, y: x + y)(torch.ones(2))
    for result in ("text", jax.random.key(0)):
        with pytest.raises(uk.InputError, match="must return arrays of numbers"):
            uk.to_torch(lambda x, result=result: {"a": result})(torch.ones(2))
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(uk.InputError, match=r"torch\.float64 need jax\.config\.update"):
            uk.to_torch(jnp.sin)(torch.ones(2, dtype=torch.float64))
        out = uk.to_torch(jnp.sin)(torch.ones(2))
        torch.testing.assert_close(out, torch.sin(torch.ones(2)))
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_floats_of_16_bits_are_refused(dtype):
    with pytest.raises(uk.InputError, match="too coarse"):
        uk.to_torch(jnp.sin)(torch.ones(2, dtype=dtype))


def test_views_that_torch_reads_conjugated_or_negated():
    z = torch.complex(_tensor(3), _tensor(3, seed=1)).detach()
    bridge = uk.to_torch(lambda x: 2 * x)
    for view in (torch.conj(z), torch.imag(torch.conj(z)), torch.conj(z)[:2]):
        torch.testing.assert_close(bridge(view), 2 * view.clone())


def test_what_torch_transforms():
    """`torch.compile` works around the bridge; the rest says so in one sentence."""
    bridge, x = uk.to_torch(lambda x: jnp.sum(jnp.sin(x))), _tensor(3)
    compiled = torch.compile(lambda x: 2 * bridge(x), backend="eager")
    torch.testing.assert_close(compiled(x), 2 * torch.sin(x).sum())
    (slope,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(slope, 2 * torch.cos(x))
    x = x.detach()
    for transformed in (torch.func.grad(bridge), torch.func.vmap(bridge), torch.func.jacrev(bridge)):
        with pytest.raises(uk.InputError, match=r"no torch\.func"):
            transformed(x)
    with pytest.raises(uk.InputError, match=r"no torch\.func"):
        torch.func.jvp(bridge, (x,), (x,))
