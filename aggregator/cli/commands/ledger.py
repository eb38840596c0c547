"""`dither ledger`: how much of its budget a device has spent, and what is left."""

from __future__ import annotations

import dataclasses
import datetime
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from producers.ledger.ledger import Account, Ledger


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ledger(file: Path, as_json: bool) -> None:
    """Show a device's ledger FILE in plain words.

    The command prints how many randomized answers the device gave in the last period, how much can
    be learned from them, what is left of the budget, and what the device's lottery does, if it has
    one. The file is not changed.
    """
    book = Ledger(file)
    if as_json:
        accounts = [_as_json(account) for account in book.accounts().values()]
        document: dict[str, Any] = {"period_seconds": book.period_ms / 1000, "accounts": accounts}
        if (lottery := book.lottery()) is not None:
            turn = book.present_turn()
            document["lottery"] = {
                "turn_seconds": lottery.turn_ms / 1000,
                "tickets": lottery.tickets,
                "drawn": None if turn is None else turn.metric,
            }
        click.echo(json.dumps(document, default=_plain))
    else:
        click.echo(book.summary())


def _as_json(account: Account) -> dict[str, Any]:
    fields = dataclasses.asdict(account)
    fields["permanent_answers"] = fields.pop("permanent")
    return fields


def _plain(x: Fraction | datetime.datetime) -> float | str:
    return x.isoformat() if isinstance(x, datetime.datetime) else float(x)
