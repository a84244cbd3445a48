"""Accounts as tidy pandas DataFrames, with units in the column names (extra: pandas)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from nsysacct.extras import need
from nsysacct.model import ProcessAccount, Record

if TYPE_CHECKING:
    import pandas as pd

    from nsysacct.account import Options
    from nsysacct.trace import Trace


def frame(records: Sequence[Record], kind: type[Record]) -> pd.DataFrame:
    """One row a record, one column a field, in the record's own field order.

    Parameters
    ----------
    records : sequence of Record
    kind : type
        Their class, which names the columns when there are none.
    """
    pandas = need("pandas", "DataFrames")
    names = list(kind.__struct_fields__)
    rows = [msgspec.structs.asdict(r) for r in records]
    result: pd.DataFrame = pandas.DataFrame(rows, columns=names)
    return result


def rounds(account: ProcessAccount) -> pd.DataFrame:
    """Per-round table: `model.RoundRow`, with ``n_ok`` and ``width`` as nullable integers."""
    from nsysacct.model import RoundRow

    table = frame(account.per_round, RoundRow)
    whole = ["width", "draft_steps", "replay_steps", "n_ok"]
    return table.astype(dict.fromkeys(whole, "Int64"))


def buckets(account: ProcessAccount) -> pd.DataFrame:
    """Buckets in report order: `model.Bucket`; one column per basis (``basis_exclusive_ns``...)."""
    from nsysacct.model import PROVENANCE, Bucket

    table = frame(account.buckets, Bucket)
    for basis in PROVENANCE:
        table[f"basis_{basis}_ns"] = [b.by_basis.get(basis, 0) for b in account.buckets]
    return table.drop(columns="by_basis")


def kernels(account: ProcessAccount) -> pd.DataFrame:
    """GPU time by bucket, family and signature: `model.KernelRow`."""
    from nsysacct.model import KernelRow

    return frame(account.kernels, KernelRow).drop(columns="by_basis")


def blind_spots(account: ProcessAccount) -> pd.DataFrame:
    """What the trace does not show: `model.BlindSpot`."""
    from nsysacct.model import BlindSpot

    return frame(account.blind_spots, BlindSpot)


def graphs(account: ProcessAccount) -> pd.DataFrame:
    """Executable graphs: `model.GraphInfo`."""
    from nsysacct.model import GraphInfo

    return frame(account.graphs, GraphInfo).drop(columns="buckets")


def signatures(account: ProcessAccount) -> pd.DataFrame:
    """Signatures counted for the number of rounds: `model.SignatureCount`."""
    from nsysacct.model import SignatureCount

    table = frame(account.rounds.signatures, SignatureCount)
    return table.astype(dict.fromkeys(["layers", "per_layer", "per_round", "rounds"], "Int64"))


def witnesses(account: ProcessAccount) -> pd.DataFrame:
    """Other counts of the rounds: `model.Witness`."""
    from nsysacct.model import Witness

    return frame(account.rounds.witnesses, Witness).astype({"rounds": "Int64"})


def findings(account: ProcessAccount) -> pd.DataFrame:
    """What else was noticed: `model.Finding`."""
    from nsysacct.model import Finding

    return frame(account.findings, Finding)


def steps(account: ProcessAccount) -> pd.DataFrame:
    """Cost of each kind of model pass: `model.StepCost`."""
    from nsysacct.model import StepCost

    return frame(account.steps, StepCost)


def events(trace: Trace, options: Options | None = None) -> pd.DataFrame:
    """Every GPU event with its bucket, basis and round, all processes and GPUs, in launch order.

    Parameters
    ----------
    trace : Trace
        Of `nsysacct.read_trace`.
    options : Options, optional
        As for the account.

    Returns
    -------
    DataFrame
        ``pid gpu kind name stream graph launch_ns start_ns end_ns bucket basis round``; texts are
        categories, numbers nullable. What is not known or does not apply is missing: the times of
        a launch that left none, the basis of an unattributed event, the round outside of rounds.
    """
    from nsysacct.account import events as placed
    from nsysacct.export import events_table
    from nsysacct.tables_export import frame_of

    return frame_of(events_table(placed(trace, options), trace.kernel_names))
