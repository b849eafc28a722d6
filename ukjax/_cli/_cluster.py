"""Options of `ukjax sweep` for workers, and how far a store is."""

from typing import Any

from .._misc._errors import InputError
from ._terminal import print_json


def tell_status(store: str, as_json: bool) -> None:
    """Prints how far a store is."""
    from .._sweep._status import status

    found = status(store)
    if as_json:
        return print_json(found)
    at_work = "a process is at work on it" if found["in_use"] else "no process is at work on it"
    print(
        f"{found['model']}: {found['made']} of {found['runs']} runs made, {found['failed']} of them failed;",
        end=" ",
    )
    print(f"{found['chunks_made']} of {found['chunks']} chunks; {at_work}")
    for processor, chunks in found["processors"].items():
        print(f"  {chunks} chunks by {processor}")


def executor_of(workers: int | None, dask: str | None, ray: str | None) -> Any:
    """What `uk.sweep` takes for the workers asked for; None where there are none."""
    if sum(x is not None for x in (workers, dask, ray)) > 1:
        raise InputError("give one of --workers, --dask and --ray.")
    if dask is not None and "://" not in dask:
        dask = f"tcp://{dask}"
    return workers or dask or ray
