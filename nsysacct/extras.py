"""Optional packages, imported when they are used, with one clear line where one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from nsysacct.errors import NsysacctError

EXTRAS = {
    "pandas": "pandas",
    "matplotlib": "plot",
    "sqlite_utils": "history",
    "jinja2": "report",
    "distributed": "distributed",
}
"""Package -> extra of nsysacct that installs it."""


def need(module: str, purpose: str) -> ModuleType:
    """Import an optional package.

    Parameters
    ----------
    module : str
        Dotted module whose first part is a key of `EXTRAS`.
    purpose : str
        What needs it; the subject of the message.

    Returns
    -------
    module

    Raises
    ------
    NsysacctError
        It is not installed; the message holds the pip command.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise  # it is installed and lacks something itself
        raise NsysacctError(
            purpose, f"{package} is not installed", f"pip install 'nsysacct[{EXTRAS[package]}]'"
        ) from None
