"""Several Fisher vectors side by side: of grey descriptors and of colour, say.

Each channel has principal components, Gaussians and a Fisher vector of its own, of length 1; side by side
they are divided by the root of their number, so that the whole has length 1 again, and inner products are the
mean of those of the channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visionkl.features.fisher import FisherVector

FloatArray = npt.NDArray[np.float32]


class ChannelVectors:
    """Makes one vector a picture with several fitted encoders.

    Parameters
    ----------
    encoders : sequence of FisherVector
        Fitted.

    Attributes
    ----------
    n_features : int
    """

    def __init__(self, encoders: Sequence[FisherVector]) -> None:
        self.encoders = tuple(encoders)
        self.n_features = sum(len(encoder.get_feature_names_out()) for encoder in encoders)

    def use(self, n_jobs: int | None, device: str) -> None:
        """Set the number of threads (None takes all usable cores), and where to compute."""
        for encoder in self.encoders:
            encoder.n_jobs, encoder.device = n_jobs, device

    def blocks(self, pictures: Sequence[Any], block_size: int = 32) -> Iterator[FloatArray]:
        """Encode pictures some at a time: `(block_size or fewer, n_features)`."""
        streams = [encoder.transform_blocks(pictures, block_size) for encoder in self.encoders]
        for parts in zip(*streams, strict=True):
            joined = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
            joined *= np.float32(len(parts) ** -0.5)
            yield joined
