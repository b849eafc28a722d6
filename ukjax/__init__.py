"""ukjax: differentiable simulation of constrained mechanical systems by the Udwadia-Kalaba equation.

A name is loaded when it is first used (PEP 562), with what it needs: `import ukjax` itself takes a hundredth of a
second, `uk.simulate` does not load what `uk.tune` works with, and the command line answers `--help` without JAX.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what editors and type checkers see; tests compare it with the table below
    from . import _interop, _pseudoinverse
    from . import analysis as analysis
    from . import mechanisms as mechanisms
    from . import models as models
    from . import robots as robots
    from ._cli._benchmark import BenchResult as BenchResult
    from ._cli._benchmark import bench as bench
    from ._compiler import TranslationError as TranslationError
    from ._compiler._machine_code import compile_loops_whole as compile_loops_whole
    from ._compiler._machine_code import optimize_now as optimize_now
    from ._compiler._structured._scalarize import scalarize as scalarize
    from ._contact._history import ContactHistory as ContactHistory
    from ._contact._poisson import Impact as Impact
    from ._contact._poisson import poisson_impact as poisson_impact
    from ._contact._solve import Contacts as Contacts
    from ._contact._solve import solve_contacts as solve_contacts
    from ._figures._serve import View as View
    from ._formula import _hierarchy
    from ._formula._acceleration import AbstractFormula as AbstractFormula
    from ._formula._acceleration import Acceleration as Acceleration
    from ._formula._acceleration import Schur as Schur
    from ._formula._acceleration import UdwadiaKalaba as UdwadiaKalaba
    from ._formula._hierarchy._hierarchy import null_space_bases as null_space_bases
    from ._formula._hierarchy._hierarchy import oblique_projectors as oblique_projectors
    from ._formula._hierarchy._hierarchy import one_four_inverses as one_four_inverses
    from ._formula._hierarchy._hierarchy import orthogonal_projectors as orthogonal_projectors
    from ._formula._hierarchy._hierarchy import orthonormal_rows as orthonormal_rows
    from ._formula._hierarchy._kalman import Enforced as Enforced
    from ._formula._hierarchy._kalman import enforce_levels as enforce_levels
    from ._formula._hierarchy._levels import Module as Module
    from ._formula._hierarchy._levels import find_modules as find_modules
    from ._formula._hierarchy._recursive import Recursive as Recursive
    from ._formula._hierarchy._recursive import at_level as at_level
    from ._formula._hierarchy._recursive import recursive_levels as recursive_levels
    from ._formula._servo import ServoControl as ServoControl
    from ._formula._servo import Servoed as Servoed
    from ._formula._servo import ServoRun as ServoRun
    from ._formula._servo import servo_control as servo_control
    from ._formula._servo import with_servo as with_servo
    from ._formula._singular_mass import KKT as KKT
    from ._formula._singular_mass import NullSpace as NullSpace
    from ._formula._singular_mass import RangeForm as RangeForm
    from ._formula._singular_mass import StackedForm as StackedForm
    from ._interop._environment import Environment as Environment
    from ._interop._environment_state import EnvironmentState as EnvironmentState
    from ._interop._export import export as export
    from ._interop._export import load_exported as load_exported
    from ._interop._from_fmu import LoadedFmu as LoadedFmu
    from ._interop._from_fmu import load_fmu as load_fmu
    from ._interop._live_page import to_page as to_page
    from ._interop._to_c import to_c as to_c
    from ._interop._to_fmu import to_fmu as to_fmu
    from ._interop._torch import to_torch as to_torch
    from ._misc._errors import CacheWarning as CacheWarning
    from ._misc._errors import ConstraintWarning as ConstraintWarning
    from ._misc._errors import ContactWarning as ContactWarning
    from ._misc._errors import InputError as InputError
    from ._misc._errors import MissingExtraError as MissingExtraError
    from ._misc._errors import SimulationError as SimulationError
    from ._misc._errors import StartMovedWarning as StartMovedWarning
    from ._misc._errors import SweepError as SweepError
    from ._misc._errors import Untranslatable as Untranslatable
    from ._misc._lie import zyz_angles as zyz_angles
    from ._misc._lie import zyz_rotation as zyz_rotation
    from ._motion._lanes import Lanes as Lanes
    from ._motion._lanes import lanes as lanes
    from ._motion._project import Projection as Projection
    from ._motion._project import project as project
    from ._motion._solvers import EnergyProjection as EnergyProjection
    from ._pseudoinverse import AbstractPseudoinverse as AbstractPseudoinverse
    from ._pseudoinverse import Lineax as Lineax
    from ._pseudoinverse import RankedInverse as RankedInverse
    from ._pseudoinverse import pinv as pinv
    from ._pseudoinverse._methods import SVD as SVD
    from ._pseudoinverse._methods import Cholesky as Cholesky
    from ._pseudoinverse._methods import CompleteOrthogonal as CompleteOrthogonal
    from ._pseudoinverse._methods import GramSchmidt as GramSchmidt
    from ._pseudoinverse._methods import Greville as Greville
    from ._pseudoinverse._methods import HouseholderQR as HouseholderQR
    from ._run._as_diffrax import DiffraxProblem as DiffraxProblem
    from ._run._as_diffrax import as_diffrax as as_diffrax
    from ._run._certificate import Certificate as Certificate
    from ._run._certify import Passage as Passage
    from ._run._certify import passages as passages
    from ._run._doctor import Report as Report
    from ._run._doctor import check as check
    from ._run._events import Event as Event
    from ._run._results import RESULTS as RESULTS
    from ._run._run_plan import clear_caches as clear_caches
    from ._run._simulate import compiled as compiled
    from ._run._simulate import simulate as simulate
    from ._run._step import step as step
    from ._run._trajectory import Trajectory as Trajectory
    from ._run._view import view as view
    from ._sweep import AbstractSamples as AbstractSamples
    from ._sweep import Grid as Grid
    from ._sweep import LatinHypercube as LatinHypercube
    from ._sweep import Sobol as Sobol
    from ._sweep import Table as Table
    from ._sweep import _reductions, _samples
    from ._sweep import sweep as sweep
    from ._system._any_order import AnyOrderSystem as AnyOrderSystem
    from ._system._any_order import OfOrder as OfOrder
    from ._system._constraint import AbstractConstraint as AbstractConstraint
    from ._system._constraint import AccelerationConstraint as AccelerationConstraint
    from ._system._constraint import DryFriction as DryFriction
    from ._system._constraint import Holonomic as Holonomic
    from ._system._constraint import Nonholonomic as Nonholonomic
    from ._system._constraint import Unilateral as Unilateral
    from ._system._lagrangian import LagrangianSystem as LagrangianSystem
    from ._system._lagrangian import lagrangian_system as lagrangian_system
    from ._system._problem import Problem as Problem
    from ._system._rows import Rows as Rows
    from ._system._rows import constraint_rows as constraint_rows
    from ._system._stabilize import AbstractStabilizer as AbstractStabilizer
    from ._system._stabilize import Baumgarte as Baumgarte
    from ._system._stabilize import NoStabilizer as NoStabilizer
    from ._system._system import AbstractSystem as AbstractSystem
    from ._system._system import System as System
    from ._system._tabulated import Tabulated as Tabulated
    from ._tune import TuneResult as TuneResult
    from ._tune import ViolationLoss as ViolationLoss
    from ._tune import tune as tune
    from ._tune._identify import IdentifyResult as IdentifyResult
    from ._tune._identify import Prediction as Prediction
    from ._tune._identify import Recording as Recording
    from ._tune._identify import identify as identify
    from ._tune._plan import PlanResult as PlanResult
    from ._tune._plan import plan as plan
    from .robots import load as load

    hierarchy = _hierarchy
    interop = _interop
    pseudoinverses = _pseudoinverse
    reductions = _reductions
    samples = _samples
    Pseudoinverse = RankedInverse
else:
    import importlib

    # Namespaces and where they are: a family each, `mechanisms` and `models` in folders of their own name.
    _MODULES = {
        "analysis": "analysis",
        "hierarchy": "_formula._hierarchy",
        "interop": "_interop",
        "mechanisms": "mechanisms",
        "models": "models",
        "pseudoinverses": "_pseudoinverse",
        "reductions": "_sweep._reductions",
        "robots": "robots",
        "samples": "_sweep._samples",
    }
    # Names that say little without their family, or are only ever returned: they load, but are not listed.
    _UNLISTED = {"Enforced", "Grid", "Module", "Prediction", "Report", "Rows", "Table", "View"}
    _FORMER = {"Pseudoinverse": "RankedInverse"}
    _NAMES = {
        "_cli._benchmark": "BenchResult bench",
        "_compiler": "TranslationError",
        "_motion._lanes": "Lanes lanes",
        "_compiler._structured._scalarize": "scalarize",
        "_compiler._machine_code": "compile_loops_whole optimize_now",
        "_contact._history": "ContactHistory",
        "_figures._serve": "View",
        "_formula._acceleration": "AbstractFormula Acceleration Schur UdwadiaKalaba",
        "_contact._poisson": "Impact poisson_impact",
        "_contact._solve": "Contacts solve_contacts",
        "_formula._singular_mass": "KKT NullSpace RangeForm StackedForm",
        "_formula._hierarchy._hierarchy": "null_space_bases oblique_projectors one_four_inverses "
        "orthogonal_projectors orthonormal_rows",
        "_formula._hierarchy._kalman": "Enforced enforce_levels",
        "_formula._hierarchy._levels": "Module find_modules",
        "_formula._hierarchy._recursive": "Recursive at_level recursive_levels",
        "_formula._servo": "ServoControl ServoRun Servoed servo_control with_servo",
        "_tune._identify": "IdentifyResult Prediction Recording identify",
        "_tune._plan": "PlanResult plan",
        "_interop._environment": "Environment",
        "_interop._environment_state": "EnvironmentState",
        "_interop._export": "export load_exported",
        "_interop._from_fmu": "LoadedFmu load_fmu",
        "_interop._live_page": "to_page",
        "_interop._to_c": "to_c",
        "_interop._to_fmu": "to_fmu",
        "_interop._torch": "to_torch",
        "_misc._errors": "CacheWarning ConstraintWarning ContactWarning InputError MissingExtraError SimulationError "
        "StartMovedWarning SweepError Untranslatable",
        "_misc._lie": "zyz_angles zyz_rotation",
        "_motion._solvers": "EnergyProjection",
        "_motion._project": "Projection project",
        "_pseudoinverse": "AbstractPseudoinverse Lineax RankedInverse pinv",
        "_pseudoinverse._methods": "SVD CompleteOrthogonal Greville HouseholderQR GramSchmidt Cholesky",
        "_run._as_diffrax": "DiffraxProblem as_diffrax",
        "_run._certificate": "Certificate",
        "_run._doctor": "Report check",
        "_run._events": "Event",
        "_run._certify": "Passage passages",
        "_run._results": "RESULTS",
        "_run._simulate": "compiled simulate",
        "_run._run_plan": "clear_caches",
        "_run._step": "step",
        "_run._trajectory": "Trajectory",
        "_run._view": "view",
        "_sweep": "AbstractSamples Grid LatinHypercube Sobol Table sweep",
        "_system._any_order": "AnyOrderSystem OfOrder",
        "_system._constraint": "AbstractConstraint AccelerationConstraint DryFriction Holonomic Nonholonomic Unilateral",
        "_system._problem": "Problem",
        "_system._rows": "Rows constraint_rows",
        "_system._stabilize": "AbstractStabilizer Baumgarte NoStabilizer",
        "_system._lagrangian": "LagrangianSystem lagrangian_system",
        "_system._system": "AbstractSystem System",
        "_system._tabulated": "Tabulated",
        "_tune": "TuneResult ViolationLoss tune",
        "robots": "load",
    }
    _HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
    __all__ = sorted({*_MODULES, *_HOME} - _UNLISTED)

    def __getattr__(name):
        """The public name, from the module it is defined in; from then on it is an attribute like any other."""
        known = _FORMER.get(name, name)
        if known in _MODULES:
            value = importlib.import_module(f"{__name__}.{_MODULES[known]}")
        elif known in _HOME:
            value = getattr(importlib.import_module(f"{__name__}.{_HOME[known]}"), known)
        else:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = value
        return value

    def __dir__():
        return __all__
