"""XML as simulators read it: also with prefixes such as `drake:` that a file does not declare, and "--" in comments."""

import re
import xml.etree.ElementTree as ET

from .._misc._errors import InputError


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


def local(tag: str) -> str:
    """A tag without its namespace."""
    return tag.rpartition("}")[2]
