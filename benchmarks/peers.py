"""The peers: other people's programs, in an environment of their own.

`python benchmarks/peers.py install` makes the environment `benchmarks/.peers`, with everything pinned:

- OpenCV, scikit-image, scikit-learn, faiss, skglm and dlib as wheels; dlib's trains detectors
  (`peer_trainer.py`);
- dlib's HOG from its source, because its Python package does not offer the features by themselves:
  `peer_fhog.cpp` is compiled against dlib's headers with the flags that a C++ user would give (-O3
  -march=native). This step needs g++; without it that peer is left out, and the table says so.

A peer is timed inside its own process (`peer_worker.py`), which waits for one JSON line and answers with one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Any

from harness import Contestant

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / ".peers"
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
FHOG_LIBRARY = ENVIRONMENT / "fhog.so"

DLIB_VERSION = "20.0.1"
PACKAGES = (
    "numpy>=2,<3",
    "opencv-contrib-python-headless==5.0.0.93",
    "scikit-image==0.26.0",
    "scikit-learn==1.9.1",
    "faiss-cpu==1.15.1",
    "skglm==0.5",
    "dlib-bin==20.0.1.post1",
)
NOT_INSTALLED = "run 'python benchmarks/peers.py install' first"


def install() -> None:
    """Make the peers' environment, anew."""
    print("Making benchmarks/.peers")
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--only-binary", ":all:", *PACKAGES], check=True)
    compiler = shutil.which("g++")
    if compiler is None:
        print("There is no g++ here: dlib's HOG is left out (on Debian: sudo apt-get install g++).")
        return
    print(f"Compiling the HOG pyramid of dlib {DLIB_VERSION}")
    with tempfile.TemporaryDirectory() as folder:
        download = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", "dlib", "-d", folder]
        subprocess.run([PYTHON, *download, f"dlib=={DLIB_VERSION}"], check=True)
        with tarfile.open(next(Path(folder).glob("dlib-*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        flags = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"]
        flags.append(f'-DDLIB_VERSION="{DLIB_VERSION}"')
        sources = ["-I", str(Path(folder) / f"dlib-{DLIB_VERSION}"), str(HERE / "peer_fhog.cpp")]
        subprocess.run([compiler, *flags, *sources, "-o", str(FHOG_LIBRARY)], check=True)
    print("The peers are ready.")


class Peers:
    """Runs functions of `peer_worker.py` in the peers' environment; a context manager that ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._n_files = 0

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=10)
        self._folder.cleanup()

    def contestant(self, name: str, function: str, arrays: dict[str, Any], **options: Any) -> Contestant:
        """Make a contestant of a worker's function.

        Parameters
        ----------
        name : str
            For the table; the version is added.
        function : str
            A function of `peer_worker.py`.
        arrays : dict of str to ndarray
            Arguments that travel as files, read by the worker outside of the time taken.
        **options
            Arguments that travel as JSON.
        """
        if not PYTHON.is_file():
            return Contestant(name, "peer", missing=NOT_INSTALLED)
        paths = {key: self._as_file(f"{function}-{key}", value) for key, value in arrays.items()}
        request = {"function": function, "arrays": paths, "options": options}
        try:
            version = self._ask({"function": "version_for", "arrays": {}, "options": {"function": function}})
            self._ask(request)
        except RuntimeError as reason:
            return Contestant(name, "peer", missing=str(reason))
        return Contestant(f"{name} {version}", "peer", lambda: float(self._ask(request)))

    def file(self, name: str) -> Path:
        """Name a file that may be there as long as the peers are asked."""
        return Path(self._folder.name) / name

    def _as_file(self, name: str, array: Any) -> str:
        import numpy as np

        self._n_files += 1  # the worker keeps what it has read: every array needs a name of its own
        path = self.file(f"{name}-{self._n_files}.npy")
        np.save(path, array)
        return str(path)

    def _ask(self, request: dict[str, Any]) -> Any:
        if self._process is None:
            command = [str(PYTHON), str(HERE / "peer_worker.py")]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the peers' process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python benchmarks/peers.py install")
    install()
