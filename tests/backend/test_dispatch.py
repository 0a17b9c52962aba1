"""Choosing a device: what is said when it cannot compute."""

import sys

import numpy as np
import pytest

from visionkl.backend import dispatch
from visionkl.backend.gpu import device, launch
from visionkl.core.errors import DataError, DeviceError, UsageError


@pytest.fixture(autouse=True)
def _nothing_known():
    device.problem.cache_clear()
    yield
    device.problem.cache_clear()


def without_gpu() -> None:
    if device.problem() is None:
        pytest.skip("this machine has a GPU that computes")


def test_auto_is_the_cpu_where_nothing_else_computes():
    without_gpu()
    assert dispatch.choose_device("auto") == dispatch.CPU


def test_cuda_without_a_gpu_says_what_is_missing():
    without_gpu()
    with pytest.raises(DeviceError, match=r"detect: device 'cuda' cannot compute here: .*(driver|CuPy)"):
        dispatch.choose_device("cuda", "detect")


def test_cuda_without_cupy_names_the_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"CUDA is not usable here: CuPy .*pip install"):
        device.namespace()
    assert "pip install" in (device.problem() or "")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "CUDA", "", None, 3])
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'"):
        dispatch.choose_device(name)


def test_a_device_is_passed_through():
    assert dispatch.choose_device(dispatch.Device(1)) == dispatch.Device(1)
    assert str(dispatch.Device(1)) == "cuda:1"


class FakeRuntime:
    """A CUDA runtime that fails in one way."""

    class CUDARuntimeError(RuntimeError):
        pass

    def __init__(self, complaint=None, n_devices=1):
        self.complaint, self.n_devices = complaint, n_devices

    def getDeviceCount(self):
        if self.complaint:
            raise self.CUDARuntimeError(self.complaint)
        return self.n_devices


class FakeCuda:
    def __init__(self, runtime):
        self.runtime = runtime

    class Device:
        def __init__(self, number):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass


class FakeModule:
    """A CuPy whose first computation fails in one way."""

    def __init__(self, runtime, complaint=None, wrong=False):
        self.cuda, self.complaint, self.wrong = FakeCuda(runtime), complaint, wrong

    def arange(self, n, dtype):
        if self.complaint:
            raise RuntimeError(self.complaint)
        return np.arange(n, dtype=dtype) + self.wrong

    asnumpy = staticmethod(np.asarray)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            FakeModule(FakeRuntime("cudaErrorInsufficientDriver: too old")),
            "no NVIDIA driver, or it is too old",
        ),
        (FakeModule(FakeRuntime("cudaErrorNoDevice: none")), "sees no GPU"),
        (FakeModule(FakeRuntime("cudaErrorUnknown: hm")), "CUDA does not start"),
        (FakeModule(FakeRuntime(n_devices=0)), "no device cuda:0"),
        (FakeModule(FakeRuntime(), "Failed to find CUDA headers"), "finds no CUDA headers"),
        (FakeModule(FakeRuntime(), "NVRTC_ERROR_INVALID_OPTION"), "built for another CUDA"),
        (FakeModule(FakeRuntime(), "CUDA_ERROR_INVALID_PTX"), "built for another CUDA"),
        (FakeModule(FakeRuntime(), "something else"), "a small computation fails"),
        (FakeModule(FakeRuntime(), wrong=True), "computes wrong numbers"),
    ],
)
def test_each_failure_has_its_sentence(monkeypatch, module, said):
    monkeypatch.setitem(sys.modules, "cupy", module)
    assert said in device.problem()
    monkeypatch.setattr(dispatch, "find_spec", lambda name: object())
    assert dispatch.choose_device("auto") == dispatch.CPU


def test_a_gpu_that_computes_is_chosen(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", FakeModule(FakeRuntime(n_devices=2)))
    monkeypatch.setattr(dispatch, "find_spec", lambda name: object())
    assert dispatch.choose_device("auto") == dispatch.Device(0)
    assert dispatch.choose_device("cuda:1") == dispatch.Device(1)
    with pytest.raises(DeviceError, match="there is no device cuda:2; the driver sees 2"):
        dispatch.choose_device("cuda:2")


class OutOfMemoryError(MemoryError):
    """Named as CuPy's."""


class Pool:
    def get_default_memory_pool(self):
        return self

    def free_all_blocks(self):
        pass


def test_blocks_become_smaller_while_memory_is_short(monkeypatch):
    monkeypatch.setattr(device, "namespace", Pool)
    done = []

    def work(rows):
        if rows.stop - rows.start > 3:
            raise OutOfMemoryError("7 GB")
        done.append(rows)

    device.in_blocks(work, 20, 16)
    assert [(rows.start, rows.stop) for rows in done][:2] == [(0, 2), (2, 4)]
    assert done[-1].stop == 20


def test_a_row_that_does_not_fit_is_an_error(monkeypatch):
    monkeypatch.setattr(device, "namespace", Pool)

    def work(rows):
        raise OutOfMemoryError("7 GB")

    with pytest.raises(DeviceError, match="too small even for a single row"):
        device.in_blocks(work, 20, 16)


def test_what_cannot_be_cut_into_blocks_is_named(monkeypatch):
    monkeypatch.setattr(device, "namespace", Pool)
    said = r"too small for the picture's search \(OutOfMemoryError: 7 GB\)"
    with pytest.raises(DeviceError, match=said), device.enough_memory("the picture's search"):
        raise OutOfMemoryError("7 GB")
    with pytest.raises(ZeroDivisionError), device.enough_memory("it"):
        raise ZeroDivisionError


def test_arrays_that_do_not_fit_stay(monkeypatch):
    class Full(Pool):
        cuda = FakeCuda(FakeRuntime())

        def asarray(self, array):
            raise OutOfMemoryError("7 GB")

        def empty(self, shape, dtype):
            raise OutOfMemoryError("7 GB") if shape else ZeroDivisionError

    monkeypatch.setattr(device, "namespace", Full)
    array = np.zeros(3)
    assert dispatch.Device(0).hold(array) is array
    assert dispatch.Device(0).reserve((3, 2), np.float32) is None
    with pytest.raises(ZeroDivisionError):
        dispatch.Device(0).reserve((), np.float32)
    reserved = dispatch.CPU.reserve((3, 2), np.float32)
    assert (reserved.shape, reserved.dtype) == ((3, 2), np.float32)
    with pytest.raises(OutOfMemoryError):
        dispatch.Device(0).put(array)
    assert dispatch.CPU.hold(array) is array


def test_estimators_compute_where_they_are_told():
    class Machine:
        device = "cpu"

    made = Machine()
    assert dispatch.device_for(made, np.zeros(3)) == dispatch.device_for(object(), [1, 2]) == dispatch.CPU
    made.device = "gpu"
    with pytest.raises(UsageError, match="The 'device' parameter of Machine must be 'auto', 'cpu'"):
        dispatch.device_for(made, np.zeros(3))


def test_things_on_a_gpu_stay_as_long_as_what_they_are_made_of(monkeypatch):
    class Module:
        cuda = FakeCuda(FakeRuntime())

    class Owner:
        pass

    monkeypatch.setattr(device, "namespace", Module)
    owner, made = Owner(), []

    def make():
        made.append(object())
        return made[-1]

    first, second = dispatch.Device(0), dispatch.Device(1)
    assert dispatch.kept_on(first, owner, make) is dispatch.kept_on(first, owner, make)
    assert dispatch.kept_on(second, owner, make) is not dispatch.kept_on(first, owner, make)
    assert len(made) == 2
    assert dispatch.kept_on(dispatch.CPU, owner, make) is not dispatch.kept_on(dispatch.CPU, owner, make)
    n_owners = len(dispatch._KEPT)
    del owner
    assert len(dispatch._KEPT) == n_owners - 1


def test_a_gpu_without_the_array_api_is_not_enough(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", FakeModule(FakeRuntime()))
    monkeypatch.setattr(device, "find_spec", lambda name: None)
    assert "array-api-compat is not installed; pip install" in device.problem()


def test_other_errors_pass_through(monkeypatch):
    monkeypatch.setattr(device, "namespace", Pool)

    def work(rows):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        device.in_blocks(work, 20, 16)


class Array:
    """An array on some device, with what `launch` looks at."""

    def __init__(self, dtype=np.float32, number=0, contiguous=True):
        self.dtype, self.device = np.dtype(dtype), FakeCuda.Device(0)
        self.device.id = number
        self.flags = type("flags", (), {"c_contiguous": contiguous})


class Namespace:
    ndarray = Array


KERNEL = launch.Kernel("x", "example", "const float* source, double* target, int n, float scale", 64)


@pytest.fixture
def launched(monkeypatch):
    monkeypatch.setattr(device, "namespace", lambda: Namespace)
    calls = []
    monkeypatch.setattr(launch, "_run", lambda *call: calls.append(call))
    return calls


def test_numbers_are_cast_and_blocks_counted(launched):
    launch.launch(KERNEL, Array(), Array(np.float64), 5, 0.1, threads=65)
    ((kernel, n_blocks, arguments),) = launched
    assert (kernel, n_blocks) == (KERNEL, 2)
    assert [type(value) for value in arguments[2:]] == [np.int32, np.float32]


def test_nothing_is_launched_for_nothing(launched):
    launch.launch(KERNEL, Array(), Array(np.float64), 5, 0.1, threads=0)
    assert not launched


@pytest.mark.parametrize(
    ("first", "n", "error", "said"),
    [
        (Array(np.float64), 1, DataError, "'source' must be an array of float32, not of float64"),
        (Array(contiguous=False), 1, DataError, "'source' must be contiguous"),
        (Array(number=1), 1, UsageError, "different devices (cuda:0, cuda:1)"),
        (np.zeros(1, np.float32), 1, UsageError, "'source' is a numpy.ndarray"),
        (Array(), 2**31, OverflowError, ""),
        (Array(), 1.5, TypeError, ""),
    ],
)
def test_bad_arguments_are_named(launched, first, n, error, said):
    with pytest.raises(error) as caught:
        launch.launch(KERNEL, first, Array(np.float64), n, 0.1, threads=1)
    assert said in str(caught.value)
    assert not launched


def test_missing_arguments_and_unreadable_declarations(launched):
    with pytest.raises(TypeError, match="takes 4 arguments, not 1"):
        launch.launch(KERNEL, Array(), threads=1)
    with pytest.raises(ValueError, match="cannot read the parameter"):
        launch.Kernel("x", "y", "const float * source", 64).signature  # noqa: B018
