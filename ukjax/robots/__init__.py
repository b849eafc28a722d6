"""Robots from files: MJCF, URDF, SDF and USD as trees of `mechanisms`, with a report of what the file has."""

from ._load import load as load
from ._report import Feature as Feature
from ._report import RobotReport as RobotReport
from ._robot import Robot as Robot
from ._sensors import Sensors as Sensors
