"""A checksum at the end of a file, read before anything else of it: parsers of damaged files crash, hang or go on.

HDF5 and FlatBuffers, which say themselves where they end, are read by others as before.
"""

from hashlib import sha256
from pathlib import Path

from ._errors import InputError

_NAME = b"ukjax sha256"
_LINE = b"\n" + _NAME + b" "
_LENGTH = len(_LINE) + 64

SEALED = f"{_NAME.decode()} at the end of the file"
"""To be written somewhere in a file that gets a checksum, so that one that lost it is known to have had it."""


def _line(content: bytes) -> bytes:
    return _LINE + sha256(content).hexdigest().encode()


def seal(path: Path) -> None:
    """Writes the checksum of a file at its end.

    **Arguments:**

    - `path`: the file, which holds `SEALED`.
    """
    content = path.read_bytes()
    with path.open("ab") as file:
        file.write(_line(content))


def intact(path: Path) -> bytes:
    """What is in a file, without its checksum; a file that never had one, such as of an earlier version, as it is.

    **Arguments:**

    - `path`: the file.

    **Raises:** `InputError` where the checksum is another or lost.
    """
    content = path.read_bytes()
    if content[-_LENGTH:].startswith(_LINE):
        content, line = content[:-_LENGTH], content[-_LENGTH:]
        damaged = line != _line(content)
    else:
        damaged = SEALED.encode() in content
    if damaged:
        raise InputError(f"'{path}' is damaged: it is not as it was written.")
    return content
