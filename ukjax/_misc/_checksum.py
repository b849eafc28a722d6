"""Checksums of files, compared before anything else is read: parsers of damaged files crash, hang or notice nothing.

A file has its checksum at its end: HDF5 and FlatBuffers, which say themselves where they end, are read by others as
before. A Zarr folder has it among its attributes.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from ._errors import InputError

ATTRIBUTE = "checksum"
"""The name of the attribute by which a file of a known format tells that it has one."""
_LINE = b"\nukjax_sha256 "
_LENGTH = len(_LINE) + 64

AT_END = "ukjax_sha256_at_the_end_of_the_file"
"""To be written somewhere in a file that gets a checksum, so that one that lost it is known to have had it."""


def _make_damage_error(path: Path) -> InputError:
    return InputError(
        f"'{path}' is damaged, or was changed after ukjax wrote it: its checksum is another, or is missing."
    )


def _line(content: bytes) -> bytes:
    return _LINE + sha256(content).hexdigest().encode()


def add_checksum(content: bytes) -> bytes:
    """A file's content, which holds `AT_END`, with its checksum at the end."""
    return content + _line(content)


def intact(path: Path) -> bytes:
    """What is in a file, without its checksum; a file that never had one, such as of an earlier version, as it is.

    **Raises:** `InputError` where the checksum is another or lost.
    """
    content = path.read_bytes()
    if content[-_LENGTH:].startswith(_LINE):
        content, line = content[:-_LENGTH], content[-_LENGTH:]
        if line != _line(content):
            raise _make_damage_error(path)
    elif AT_END.encode() in content:
        raise _make_damage_error(path)
    return content


def digest_of_folder(path: Path, attributes: dict[str, Any]) -> str:
    """A digest of all files of a Zarr folder, and of its attributes but for the checksum."""
    own = {name: x for name, x in attributes.items() if name != ATTRIBUTE}
    hashed = sha256(json.dumps(own, sort_keys=True).encode())
    for file in sorted(x for x in path.rglob("*") if x.is_file() and x != path / "zarr.json"):
        hashed.update(f"{file.relative_to(path).as_posix()} {file.stat().st_size}\n".encode())
        hashed.update(file.read_bytes())
    return hashed.hexdigest()


def require_intact_folder(path: Path) -> None:
    """Raises `InputError` for a Zarr folder whose files are not those it was written with, where it has a checksum."""
    attributes = json.loads((path / "zarr.json").read_bytes())["attributes"]
    if ATTRIBUTE in attributes and attributes[ATTRIBUTE] != digest_of_folder(path, attributes):
        raise _make_damage_error(path)
