"""Gradients of a row of pixels, and their directions, in loops that LLVM vectorises."""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from visionkl.backend.cpu.jit import compiled


@compiled
def differences(three_rows, has_above, has_below, dx, dy):
    """Write half the differences of the neighbours; on the border the difference to the one neighbour."""
    cols = len(dx)
    half = np.float32(0.5)
    here = three_rows[1]
    above = three_rows[0] if has_above else here
    below = three_rows[2] if has_below else here
    scale = half if has_above and has_below else np.float32(1)
    for x in range(cols):
        dy[x] = scale * (below[x] - above[x])
    if cols == 1:
        dx[0] = 0
        return
    before, after, inner = here[: cols - 2], here[2:], dx[1 : cols - 1]
    for x in range(cols - 2):
        inner[x] = half * (after[x] - before[x])
    dx[0] = here[1] - here[0]
    dx[cols - 1] = here[cols - 1] - here[cols - 2]


@compiled
def eighths(smaller, larger):
    """Angle whose tangent is smaller / larger, in eighths of a turn: 0 to 1, off by 2e-6 at most."""
    q = smaller / max(larger, np.float32(1e-30))
    z = q * q
    angle = np.float32(0.06703263) + z * np.float32(-0.014921243)
    angle = np.float32(0.24642324) + z * (np.float32(-0.14823875) + z * angle)
    angle = q * (np.float32(1.2732105) + z * (np.float32(-0.42350854) + z * angle))
    return min(angle, np.float32(1))
