"""nsysacct: an honest account of speculative decoding from Nsight Systems exports.

The public names load what they need when they are first used, so that ``import nsysacct`` costs
next to nothing:

>>> import nsysacct as na
>>> account = na.split("small_graph.sqlite", layers=8)
>>> int(na.frames.rounds(account)["verify_ns"].sum()) == account.bucket("verify").gpu_ns
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nsysacct import frames, plots
    from nsysacct.account import Options
    from nsysacct.api import make_options, split
    from nsysacct.breakeven import break_even
    from nsysacct.comparability import Side
    from nsysacct.economics import costs_of
    from nsysacct.errors import NsysacctError
    from nsysacct.gate import judge
    from nsysacct.model import Account
    from nsysacct.registry import load_registry
    from nsysacct.trace import read_trace
    from nsysacct.whatif import Levers, what_if
    from nsysacct.wire import dump_account, load_account

_HOME = {
    "split": "api",
    "make_options": "api",
    "Options": "account",
    "Account": "model",
    "read_trace": "trace",
    "load_account": "wire",
    "dump_account": "wire",
    "frames": "",
    "plots": "",
    "costs_of": "economics",
    "what_if": "whatif",
    "Levers": "whatif",
    "break_even": "breakeven",
    "judge": "gate",
    "Side": "comparability",
    "load_registry": "registry",
    "NsysacctError": "errors",
}
"""Public name -> module that defines it; "" for modules."""

__all__ = [
    "Account",
    "Levers",
    "NsysacctError",
    "Options",
    "Side",
    "__version__",
    "break_even",
    "costs_of",
    "dump_account",
    "frames",
    "judge",
    "load_account",
    "load_registry",
    "make_options",
    "plots",
    "read_trace",
    "split",
    "what_if",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not home:
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("Account", "load_account"):
        importlib.import_module(f"{__name__}.notebook")  # gives accounts their HTML
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted({*globals(), *__all__})
