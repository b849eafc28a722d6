"""Programs as a person reads them."""

from collections.abc import Iterable, Sequence
from typing import Any

from ._live_nodes import LiveNodes
from ._nodes import GROWING, Node, Operand
from ._subprogram import Subprogram
from ._table import TRUTHS


def as_text(outputs: Sequence[Operand]) -> str:
    """A program as a person reads it, one operation a line, regions indented; what it calls comes after it."""
    callees = dict[Any, str]()
    lines = _text_of(LiveNodes(outputs), callees)
    lines.append(f"gives {_list(outputs)}")
    written = 0
    while written < len(callees):
        callee, name = list(callees.items())[written]
        written += 1
        lines += [
            "",
            f"{name}:",
            *_text_of(callee.needed(), callees),
            f"gives {_list(callee.results)}",
        ]
    return "\n".join(lines)


def _list(operands: Iterable[Operand]) -> str:
    return ", ".join(map(repr, operands))


def _text_of(needed: LiveNodes, callees: dict[Subprogram, str]) -> list[str]:
    """The lines of one program; what it calls is noted in `callees`."""
    lines = list[str]()

    def write_nodes(nodes: Sequence[Node], indent: str) -> None:
        write = lambda text: lines.append(indent + text.rstrip())
        for node in nodes:
            outs = {x.data: x for x in sorted(needed.outputs.get(node, ()), key=lambda x: x.data)}
            gives = lambda named, outs=outs: ", ".join(f"{x!r} = {named[k]!r}" for k, x in outs.items())
            if node.op == "loop":
                body, live = node.data, needed.carried(node)
                params = body.region.params
                write(f"{node!r}: loop from {_list(node.args[k] for k in live)}")
                write(f"  {_list(params[k] for k in live)}:")
                write_nodes(needed.of(body.region), indent + "    ")
                write(f"  while {body.condition!r} next {_list(body.results[k] for k in live)}")
                write(f"  gives {gives(params)}")
            elif node.op == "branch":
                body, given = node.data, needed.given(node)
                write(f"{node!r}: branch {node.args[0]!r} of {_list(node.args[1 + k] for k in given)}")
                for word, region, results in zip(("if so", "else"), body.regions, body.results, strict=True):
                    write(f"  {word} {_list(region.params[k] for k in given)}:")
                    write_nodes(needed.of(region), indent + "    ")
                    write(f"    gives {_list(results[k] for k in outs)}")
                write(f"  gives {_list(outs.values())}")
            elif node.op == "call":
                name = callees.setdefault(node.data, f"callee {len(callees) + 1}")
                write(f"{node!r}: call {name} of {_list(node.args[i] for i in node.data.given())}")
                write(f"  gives {gives(node.data.results)}")
            else:
                size = "" if node.size is None else f"[{'*' if node.size == GROWING else node.size}]"
                about = f" [{node.data}]" if node.op in ("convert", "parameter") or node.op in TRUTHS else ""
                write(f"{node!r}: {node.type}{size} = {node.op}{about} {_list(node.args)}")

    params = [x for x in needed.nodes if x.op == "parameter" and x.region.depth == 0]
    kind = lambda x: x.type if x.size is None else f"{x.type}[{x.size}]"
    lines.append(f"given {', '.join(f'{x!r}: {kind(x)}' for x in params)}")
    write_nodes(needed.outermost, "")
    return lines
