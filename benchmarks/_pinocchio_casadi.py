"""C that CasADi generates of Pinocchio's algorithms, for robots of `pip install example-robot-data`.

The wheels of `pin` have no Python module for it, but both wheels have headers: `_pinocchio_casadi.cpp` is built with g++.
"""

import importlib
import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from _pinocchio_cpp import _DEFINES

_SOURCE = Path(__file__).with_name("_pinocchio_casadi.cpp")
ROBOTS = {  # files, and whether their base is free
    "panda": ("panda_description/urdf/panda.urdf", False),
    "go2": ("go2_description/urdf/go2.urdf", True),
}


def _folder_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def robot_file(name: str, folder: Path) -> Path | None:
    """The URDF without couplings of joints and damping, which Pinocchio does not have; None where it is not installed."""
    cmeel = _folder_of("cmeel")
    if cmeel is None:
        return None
    robots = cmeel.parent / "cmeel.prefix" / "share" / "example-robot-data" / "robots"
    given = robots / ROBOTS[name][0]
    if not given.exists():
        return None
    path = folder / f"{name}.urdf"
    path.write_text(re.sub(r"<(mimic|dynamics)[^>]*/>", "", given.read_text()))
    return path


def generate(name: str, file: Path, folder: Path) -> Path | None:
    """C source with `aba` and `rnea` of (q, v, forces or accelerations); None where something is missing."""
    casadi, cmeel, compiler = _folder_of("casadi"), _folder_of("cmeel"), shutil.which("g++")
    if casadi is None or cmeel is None or compiler is None or importlib.util.find_spec("pinocchio") is None:
        return None
    pin: Any = importlib.import_module("pinocchio")
    prefix = cmeel.parent / "cmeel.prefix"
    program = Path(tempfile.gettempdir()) / f"pinocchio_casadi_{pin.__version__}"
    if not program.exists():
        print("compiling _pinocchio_casadi.cpp takes some minutes, once", flush=True)
        includes = [f"-I{x}" for x in (prefix / "include", casadi / "include", casadi / "include" / "eigen3")]
        places = [x for y in (casadi, prefix / "lib") for x in (f"-L{y}", f"-Wl,-rpath,{y}")]
        libraries = ["-lcasadi", "-lboost_serialization"]
        command = [compiler, "-std=c++17", "-w", str(_SOURCE), *_DEFINES, *includes, *places, *libraries]
        subprocess.run([*command, "-o", str(program)], check=True)
    base = [pin.JointModelFreeFlyer()] * ROBOTS[name][1]
    pin.buildModelFromUrdf(str(file), *base).saveToBinary(str(folder / "model.bin"))
    subprocess.run([program, folder / "model.bin", folder], check=True, stdout=subprocess.DEVNULL)
    return folder / "pinocchio_c.c"
