"""One self-contained HTML page of an account (extra: report): no network, no clock, no path.

The tables and texts are in the page itself and readable without scripts; scripts add the chart of
rounds, the what-if sliders, sorting and filtering.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from nsysacct.extras import need
from nsysacct.model import Account
from nsysacct.report._data import facts, lever_limits, page_data, script_json
from nsysacct.report._tables import Tables, page_tables, ways_to_explain
from nsysacct.wording import headline

SCRIPTS = ("whatif.js", "levers.js", "chart.js", "tables.js")
"""In the order in which they run."""


def report_html(account: Account, *, plain_ms: float | None = None) -> str:
    """The page.

    Parameters
    ----------
    account : Account
    plain_ms : float, optional
        Wall of one plain step, ms, where the account has none; the page lets the reader change it.

    Returns
    -------
    str
        HTML; the same account gives the same text. Every text of the trace is escaped. Long tables
        are cut and say so, and rounds are joined to means, so that the page stays below 2 MB.

    Raises
    ------
    NsysacctError
        Jinja2 is not installed.
    """
    template = _environment().get_template("page.html.j2")
    data = page_data(account, plain_ms=plain_ms)
    tables = page_tables(account)
    page: str = template.render(
        account=account,
        data=data,
        tables=tables,
        headline=headline(account),
        facts=facts(account),
        sections=list(_sections(account, tables)),
        bar_buckets=list(dict.fromkeys(p.bucket for p in tables.bar)),
        bar_ways=ways_to_explain(tables),
        options=json.dumps(account.options, ensure_ascii=False) if account.options else "",
        data_json=script_json(data.for_scripts()),
        style=_text("page.css"),
        scripts="\n".join(_text(name) for name in SCRIPTS),
        **lever_limits(data.costs),
    )
    return page


def _sections(account: Account, tables: Tables) -> Iterator[tuple[str, str]]:
    """Anchors of the page in its order."""
    yield "split", "Split"
    if account.per_round:
        yield "over-time", "Rounds over time"
    yield "what-if", "What if"
    yield "blind", "Blind spots"
    for table in tables.more:
        yield table.name, table.title


def _environment() -> Any:
    jinja2 = need("jinja2", "the report")
    return jinja2.Environment(
        loader=jinja2.PackageLoader("nsysacct", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
