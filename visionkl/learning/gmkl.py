"""Multiple kernel learning with exact kernels: GMKL (Varma & Babu), the baseline of RFF-MKL (METHODS §7).

Fundamentals
------------
With a kernel k_j and its matrix K_j for each channel, the combined kernel is K_d = Σ_j d_j K_j, and d ≥ 0 is
learned together with the machine,

    min over d ≥ 0, f, b of   ½ ‖f‖²_{K_d}  +  C (1/n) Σ_i loss(f(x_i) + b, y_i)  +  Σ_j d_j.

With the squared loss ½ (z − y)² the machine for a given d is one linear system: α = (K_d + (n/C) I)⁻¹ (y − b)
with Σ_i α_i = 0, the objective is ½ y · α + Σ_j d_j, and its derivative by d_j is 1 − ½ αᵀ K_j α. It is
convex in d. Steps along d ≥ 0 are those of a projected quasi-Newton method (L-BFGS-B), which needs fewer
machines than the projected gradients of the original.

With K_j = Ψ_j Ψ_jᵀ this is the group lasso of `visionkl.learning.multiple` with λ = √2 / C: writing w_j for
√d_j times the weights, the objective is ½ Σ_j ‖w_j‖² / d_j + Σ_j d_j + C · loss, and its best d_j is
‖w_j‖ / √2, which leaves √2 Σ_j ‖w_j‖.

Time grows with n³ and memory with r n², so this is for up to some thousand samples, and to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, optimize
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from visionkl.core.errors import DataError
from visionkl.core.validation import check_number, parameter_error
from visionkl.kernels.base import Kernel
from visionkl.kernels.exact import make_kernel
from visionkl.learning.channels import one_for_each, read_channels, read_training, read_new
from visionkl.learning.targets import class_signs, numeric_targets

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]
