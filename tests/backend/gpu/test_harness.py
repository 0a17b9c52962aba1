"""The harness itself: it catches the bugs that kernels have, and lets kernels pass that have none."""

import numpy as np
import pytest

from tests.backend.gpu import host_build
from tests.backend.gpu.host_build import HOST, KernelFailure
from visionkl.backend.gpu.launch import Kernel

PARAMETERS = "const int* in, int* out, int n"
N = 192
INPUT = np.arange(N, dtype=np.int32) % 7

#: What each kernel computes when it is right.
EXPECTED = {
    "off_by_one": 2 * INPUT,
    "missing_barrier": 2 * INPUT[np.arange(N) ^ 1],
    "missing_second_barrier": INPUT.reshape(3, 64).sum(axis=0)[np.arange(64) ^ 1],
    "plain_scatter": np.bincount(INPUT, minlength=7),
    "not_cleared": INPUT.reshape(3, 64).sum(axis=1),
    "half_a_barrier": 2 * INPUT,
    "beyond_shared": 2 * INPUT[:64],
    "index_overflow": 2 * INPUT[:64],
}
ONE_BLOCK = ("missing_second_barrier", "beyond_shared", "index_overflow")
KERNELS = {name: Kernel("seeded", name, PARAMETERS, 64) for name in EXPECTED}


@pytest.fixture(scope="module")
def seeded(build_folder, tmp_path_factory):
    """Make the kernels with or without their bugs, in a flavour."""
    text = (HOST / "seeded_bugs.cu").read_text(encoding="utf-8")
    made = {}

    def make(flavour, *, is_wrong):
        if (flavour, is_wrong) not in made:
            source = "#define HAS_BUG\n" + text if is_wrong else text
            program = host_build.build(flavour, {"seeded": source}, list(KERNELS.values()), build_folder)
            folder = tmp_path_factory.mktemp("seeded")
            made[flavour, is_wrong] = host_build.make_machine(flavour, program, folder)
        return made[flavour, is_wrong]

    yield make
    for machine in made.values():
        machine.close()


def run(machine, name, order):
    out = np.zeros_like(EXPECTED[name], np.int32)
    n_blocks = 1 if name in ONE_BLOCK else 3 + (name == "off_by_one")
    n = np.int32(N if n_blocks > 1 or name == "missing_second_barrier" else len(out))
    machine.run(KERNELS[name], n_blocks, [INPUT[: max(n, 64)].copy(), out, n], order, seed=1)
    return out


@pytest.mark.parametrize("order", host_build.ORDERS)
@pytest.mark.parametrize("flavour", ["plain", "asan", "tsan"])
def test_right_kernels_pass(seeded, flavour, order):
    for name, expected in EXPECTED.items():
        assert np.array_equal(run(seeded(flavour, is_wrong=False), name, order), expected), name


CAUGHT = [
    ("off_by_one", "asan", "heap-buffer-overflow"),
    ("beyond_shared", "asan", "out of bounds|overflow"),
    ("index_overflow", "asan", "signed integer overflow"),
    ("missing_barrier", "tsan", "data race"),
    ("missing_second_barrier", "tsan", "data race"),
    ("plain_scatter", "tsan", "data race"),
    ("half_a_barrier", "plain", "wait at a barrier"),
    ("half_a_barrier", "asan", "wait at a barrier"),
]


@pytest.mark.parametrize(("name", "flavour", "complaint"), CAUGHT)
@pytest.mark.parametrize("order", host_build.ORDERS)
def test_bugs_are_caught_by_what_looks_for_them(seeded, name, flavour, complaint, order):
    with pytest.raises(KernelFailure, match=complaint):
        run(seeded(flavour, is_wrong=True), name, order)


@pytest.mark.parametrize("name", ["missing_barrier", "missing_second_barrier", "not_cleared"])
def test_wrong_numbers_show_without_a_sanitiser(seeded, name):
    machine = seeded("plain", is_wrong=True)
    assert any(not np.array_equal(run(machine, name, order), EXPECTED[name]) for order in host_build.ORDERS)


def test_a_scatter_of_several_blocks_is_a_race_too(seeded):
    """Threads of different blocks are not ordered, although the harness runs blocks one by one."""
    lonely = Kernel("seeded", "plain_scatter", PARAMETERS, 1)
    arguments = [np.zeros(2, np.int32), np.zeros(1, np.int32), np.int32(2)]
    with pytest.raises(KernelFailure, match="data race"):
        seeded("tsan", is_wrong=True).run(lonely, 2, arguments, "forward", 0)


def test_a_wrong_declaration_does_not_compile(build_folder):
    text = (HOST / "seeded_bugs.cu").read_text(encoding="utf-8")
    wrong = Kernel("seeded", "off_by_one", PARAMETERS.replace("int n", "long long n"), 64)
    with pytest.raises(KernelFailure, match="static assertion failed"):
        host_build.build("plain", {"seeded": text}, [wrong], build_folder)
