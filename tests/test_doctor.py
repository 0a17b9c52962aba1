"""The doctor's lines."""

import subprocess
import sys

import numpy as np
import pytest

from visionkl import __version__, doctor
from visionkl.backend.dispatch import CPU
from visionkl.backend.gpu import device


def test_the_command_says_what_is_there():
    done = subprocess.run([sys.executable, "-m", "visionkl.doctor"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"visionkl {__version__}, Python ")
    assert "usable cores" in done.stdout
    assert ("CUDA: not usable; " in done.stdout) or ("self-test of HOG cells: " in done.stdout)


def test_a_missing_gpu_is_explained(monkeypatch):
    monkeypatch.setattr(device, "problem", lambda number=0: "the moon is full")
    assert list(doctor.examine())[-1] == "CUDA: not usable; the moon is full"


@pytest.mark.parametrize("name", doctor._CHECKS)
def test_self_tests_have_something_to_compare(name):
    computed = doctor._CHECKS[name](CPU)
    assert np.abs(computed).max() > 0
    assert np.isfinite(computed.astype(float)).all()


def test_different_numbers_are_found(monkeypatch, capsys):
    answers = iter([np.zeros(3), np.ones(3)])
    monkeypatch.setattr(doctor, "_CHECKS", {"nothing": lambda where: next(answers)})
    monkeypatch.setattr(doctor, "_describe_devices", lambda: iter(["cuda:0: a stone"]))
    monkeypatch.setattr(device, "problem", lambda number=0: None)
    assert doctor.main() == 1
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "self-test of nothing: largest difference 1.0e+00: DIFFERENT"
    )


def test_a_self_test_that_fails_is_a_difference():
    def fail(where):
        raise RuntimeError("no")

    assert doctor._compare(fail) == "RuntimeError: no DIFFERENT"
