"""Memory of threads, and memory given back."""

import sys
from pathlib import Path

import numpy as np
import pytest

from visionkl.backend.scratch import give_back, scratch


def test_the_same_memory_is_used_again():
    first = scratch("test", (100,), np.float64)
    first[:] = 7
    assert scratch("test", (10, 5), np.float64)[0, 0] == 7
    assert len(scratch("test", (200,), np.float64)) == 200


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's memory")
def test_freed_memory_is_given_back():
    kept = [np.ones(1000) for _ in range(20000)]  # too small for pages of their own: 160 MB in one heap
    held = kept[::100]  # and here and there one that stays
    before = resident()
    del kept
    give_back()
    assert resident() < before - 80e6
    assert len(held) == 200
