"""Options of `ukjax sweep` for workers, and how far a store is."""

from typing import Any

import typer

from .._misc._errors import InputError


def tell_status(store: str | None) -> None:
    """Prints how far a store is, instead of a sweep."""
    if store is None:
        return
    from .._sweep._status import status

    found = status(store)
    at_work = "a process is at work on it" if found["in_use"] else "no process is at work on it"
    print(
        f"{found['model']}: {found['made']} of {found['runs']} runs made, {found['failed']} of them failed;",
        end=" ",
    )
    print(f"{found['chunks_made']} of {found['chunks']} chunks; {at_work}")
    for processor, chunks in found["processors"].items():
        print(f"  {chunks} chunks by {processor}")
    raise typer.Exit


def executor_of(workers: int | None, dask: str | None, ray: str | None) -> Any:
    """What `uk.sweep` takes for the workers asked for; None where there are none."""
    if sum(x is not None for x in (workers, dask, ray)) > 1:
        raise InputError("give one of --workers, --dask and --ray.")
    if dask is not None and "://" not in dask:
        dask = f"tcp://{dask}"
    return workers or dask or ray
