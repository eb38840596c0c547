"""`dither ledger`: what a device has given away, and what it may still give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from producers.ledger.ledger import Account, Ledger


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ledger(file: Path, as_json: bool) -> None:
    """Show in plain words what a device's ledger FILE says.

    It says how many randomized answers the device gave in the last period, how much can be learned
    from them, and what is left of the budget. The file is not changed.
    """
    book = Ledger(file)
    if as_json:
        accounts = [_as_json(account) for account in book.accounts().values()]
        click.echo(json.dumps({"period_seconds": book.period_ms / 1000, "accounts": accounts}))
    else:
        click.echo(book.summary())


def _as_json(account: Account) -> dict[str, Any]:
    return {
        "metric": account.metric,
        "budget": None if account.budget is None else float(account.budget),
        "spent": float(account.spent),
        "left": None if account.left is None else float(account.left),
        "reports": account.reports,
        "permanent_answers": account.permanent,
        "trusted": account.trusted,
        "ever_spent": float(account.ever_spent),
        "ever_reports": account.ever_reports,
        "more_at": None if account.more_at is None else account.more_at.isoformat(),
    }
