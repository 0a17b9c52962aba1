"""Adding up the scores of roots and parts on a GPU."""

from visionkl.backend.gpu.distance import add_sampled

__all__ = ["add_sampled"]
