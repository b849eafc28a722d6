"""Files that a robot's file refers to, and XML as simulators read it.

They read prefixes that a file does not declare, such as `drake:`, and "--" in comments.
"""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np

from .._misc._errors import InputError

_READABLE = (".stl", ".obj", ".msh")  # what MuJoCo reads of meshes


def parse_xml(raw: bytes, title: str) -> ET.Element:
    """The root of an XML file."""
    raw = raw.strip()
    try:
        try:
            return ET.fromstring(raw)
        except ET.ParseError:
            raw = re.sub(rb"<!--.*?-->", b"", raw, flags=re.DOTALL).strip()
            used = set(re.findall(rb"</?(\w+):\w", raw)) | set(re.findall(rb"\s(\w+):\w+\s*=", raw))
            declared = {b"xmlns", b"xml", *re.findall(rb"xmlns:(\w+)\s*=", raw)}
            known = b"".join(b' xmlns:%b="urn:%b"' % (x, x) for x in sorted(used - declared))
            return ET.fromstring(re.sub(rb"(<[A-Za-z]\w*)", rb"\1" + known, raw, count=1))
    except (ET.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{title} is no well-formed XML: {error}.") from error


def local_name(tag: str) -> str:
    """A tag without its namespace."""
    return tag.rpartition("}")[2]


def numbers_in(text: str, count: int, what: str) -> np.ndarray:
    """Numbers of a text."""
    try:
        numbers = np.array([float(x) for x in text.split()])
    except ValueError as error:
        raise InputError(f"{what}: {error}.") from error
    if numbers.size != count or np.isnan(numbers).any():
        raise InputError(f"{what} needs {count} numbers, got '{text}'.")
    return numbers


def numbers_of(element: ET.Element | None, key: str, default: str, what: str) -> np.ndarray:
    """The numbers of an attribute, as many as the default has, which counts where it is missing or empty."""
    text = (None if element is None else element.get(key)) or default
    return numbers_in(text, len(default.split()), f"{what}: {key}")


def find_mesh(name: str, folder: Path) -> Path | None:
    """The file that a mesh's name means, if it is of a kind that is read."""
    return find_file(name, folder) if Path(name).suffix.lower() in _READABLE else None


def find_file(name: str, folder: Path) -> Path | None:
    """The file that a name means: `package://` packages are looked for in the folders above."""
    scheme, _, rest = name.rpartition("://")
    places = [folder / rest]
    if scheme == "package" or scheme == "model":
        package, _, inside = rest.partition("/")
        above = [folder, *folder.parents]
        places = [
            x for up in above for x in (up / package / inside, *([up / inside] if up.name == package else []))
        ]
    return next((x for x in places if x.is_file()), None)


def is_ascii(file: Path) -> bool:
    """Whether a file is an STL of text, which MuJoCo does not read: its size is not that of its number of faces."""
    start = file.read_bytes()[:84]
    return file.suffix.lower() == ".stl" and file.stat().st_size != 84 + 50 * int.from_bytes(
        start[80:], "little"
    )
