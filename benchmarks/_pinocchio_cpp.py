"""Builds `_pinocchio.cpp` with g++ and the headers that `pip install pin cmeel-eigen` brings, and calls it in process.

`pin` is compiled for any x86-64 processor; this for the one at hand, with `-O3 -march=native`.
"""

import ctypes
import functools
import hashlib
import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

Array = np.ndarray
_SOURCE = Path(__file__).with_name("_pinocchio.cpp")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-DNDEBUG", "-fopenmp", "-shared", "-fPIC", "-w")
_DEFINES = (  # those of pinocchioTargets.cmake
    "-DBOOST_MPL_LIMIT_LIST_SIZE=30",
    "-DBOOST_MPL_LIMIT_VECTOR_SIZE=30",
    "-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS",
    "-DBOOST_FUSION_INVOKE_MAX_ARITY=12",
)
_NUMBERS = ctypes.POINTER(ctypes.c_double)


class _Torques(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBERS) for name in ("constant", "amplitude", "damping", "stiffness", "rest")),
        ("frequency", ctypes.c_double),
        ("spring", _NUMBERS),
    ]


@functools.cache
def load_library() -> Any:
    """The compiled library; None, and a line that says why, where it cannot be built."""
    spec = importlib.util.find_spec("cmeel")
    prefix = Path(str(spec.origin)).parent.parent / "cmeel.prefix" if spec else Path("cmeel.prefix")
    eigen = prefix / "include" / "eigen3"
    compiler = shutil.which("g++")
    if compiler is None or not eigen.is_dir():
        print(
            "Pinocchio from C++ is left out: it needs g++ and `pip install pin cmeel-eigen`", file=sys.stderr
        )
        return None
    built = platformdirs.user_cache_path("ukjax", ensure_exists=True) / f"pinocchio_{_fingerprint()}.so"
    if not built.exists():
        print("compiling _pinocchio.cpp takes some minutes, once", file=sys.stderr, flush=True)
        where = (
            f"-I{prefix / 'include'}",
            f"-I{eigen}",
            f"-L{prefix / 'lib'}",
            f"-Wl,-rpath,{prefix / 'lib'}",
        )
        command = [
            compiler,
            *_FLAGS,
            *_DEFINES,
            str(_SOURCE),
            *where,
            "-lboost_serialization",
            "-o",
            str(built),
        ]
        subprocess.run(command, check=True)
    found = ctypes.CDLL(str(built))
    found.make.restype = ctypes.c_void_p
    return found


def _fingerprint() -> str:
    pin: Any = importlib.import_module("pinocchio")
    return hashlib.sha256(_SOURCE.read_bytes() + pin.__version__.encode()).hexdigest()[:12]


def _numbers(x: Array) -> Any:
    return x.ctypes.data_as(_NUMBERS)


class CompiledRobot:
    """A model of Pinocchio in C++, with its loops and torques.

    **Arguments:**

    - `model`: of `pinocchio`.
    - `loops`: (joint, placement, joint, placement) of points that coincide.
    - `gain`, `iterations`: of Baumgarte's correction [1/s], and of the proximal solver.
    - `torques`: by the names of the C++ program; those that are not given are 0.
    - `threads`: among which batches are shared.
    """

    def __init__(
        self,
        model: Any,
        loops: Sequence[tuple[int, Any, int, Any]],
        gain: float = 0.0,
        iterations: int = 1,
        threads: int = 1,
        **torques: Any,
    ):
        spring = torques.pop("spring", None)
        frequency = torques.pop("frequency", 0.0)
        self.nq, self.nv = model.nq, model.nv
        names = ("constant", "amplitude", "damping", "stiffness", "rest")
        every = [np.array(torques.get(name, np.zeros(model.nv)), float) for name in names]
        pull = None if spring is None else np.array(spring, float)
        given = _Torques(*map(_numbers, every), frequency, None if pull is None else _numbers(pull))
        joints = np.array([x[i] for x in loops for i in (0, 2)], np.int32)
        placements = [x[i] for x in loops for i in (1, 3)]
        flat = [y for x in placements for y in (*x.rotation.T.ravel(), *x.translation)]
        places = np.array(flat, float)
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "model.bin")
            model.saveToBinary(file)
            self._robot = ctypes.c_void_p(
                load_library().make(
                    file.encode(), threads, len(loops), joints.ctypes.data_as(ctypes.c_void_p), _numbers(places),
                    ctypes.c_double(gain), iterations, given,
                )
            )  # fmt: skip

    def run(self, states: Array, t1: float, order: int, size: float) -> Array:
        """Where runs from (count, nq + nv) end.

        **Arguments:**

        - `states`: to start from.
        - `t1`: the end [s].
        - `order`: 4 for RK4 at steps of `size` [s]; 5 and 8 for the pairs of Dormand and Prince and of Fehlberg, whose
          tolerance is `size`.
        - `size`: see there.
        """
        found = np.array(states, float)
        load_library().runs(
            self._robot, len(found), _numbers(found), ctypes.c_double(t1), order, ctypes.c_double(size)
        )
        return found

    def accelerations(self, states: Array) -> Array:
        """(count, nv) at states (count, nq + nv)."""
        states, found = np.ascontiguousarray(states), np.empty((len(states), self.nv))
        load_library().accelerations(self._robot, len(states), _numbers(states), _numbers(found))
        return found

    def torques(self, states: Array, accelerations: Array) -> Array:
        """(count, nv) that these accelerations (count, nv) take, by `rnea`."""
        states, found = np.ascontiguousarray(states), np.empty_like(accelerations)
        load_library().torques(
            self._robot, len(states), _numbers(states), _numbers(accelerations), _numbers(found)
        )
        return found
