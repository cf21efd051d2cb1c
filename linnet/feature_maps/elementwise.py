"""Elementwise maps, phi(x)_i = f(x_i): the width stays D and nothing is learned.

    elu  elu(x) + 1        relu  max(x, 0)        relu2  max(x, 0)^2        exp  e^x        identity  x

All are cores (see core.py), so an op can apply them while it loads q and k. Non-negative, except identity. Only
identity has a kernel that depends on q . k alone; the others have no shorter form than phi(q) . phi(k).
"""

from __future__ import annotations

from ..errors import whole
from .base import FeatureMap
from .core import Core


class Elementwise(FeatureMap):
    """Base class of maps without options, of width head_dim."""

    def __init__(self, head_dim: int) -> None:
        super().__init__(whole("head_dim", head_dim, 1))

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}"


class Identity(Elementwise):
    """phi(x) = x, kernel q . k: plain (unnormalised) linear attention, or inputs that are already mapped.

    Schlag et al. 2021, arXiv:2102.11174. The kernel takes both signs: use it with `normalize=False`.
    """

    core = Core("identity")


class Elu(Elementwise):
    """phi(x) = elu(x) + 1, that is x + 1 for x > 0 and e^x otherwise.

    Katharopoulos et al. 2020, arXiv:2006.16236, equation 7. Positive everywhere with a gradient everywhere, which
    is why the paper prefers it to relu. No scaling of q and k, as in the authors' code.
    """

    core = Core("elu")


class Relu(Elementwise):
    """phi(x) = max(x, 0). Katharopoulos et al. 2020, arXiv:2006.16236; Qin et al. 2022, arXiv:2202.08791.

    A token whose coordinates are all negative has no features: its denominator is 0 and only eps remains.
    """

    core = Core("relu")


class SquaredRelu(Elementwise):
    """phi(x) = max(x, 0)^2. So et al. 2021 (Primer), arXiv:2109.08668, used as a feature map.

    Sharper than relu, once differentiable at 0; float16 overflows above |x| = 255.
    """

    core = Core("relu2")


class Exp(Elementwise):
    """phi(x) = e^x, coordinate by coordinate. Zhang et al. 2024 (Hedgehog), arXiv:2402.04347, section 3.2.

    Spiky like softmax but unbounded: it overflows above x = 88 in float32 and bfloat16, 11 in float16, 709 in
    float64. `SoftmaxFeatures` is the bounded form.
    """

    core = Core("exp")
