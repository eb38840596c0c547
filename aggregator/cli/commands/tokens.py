"""`dither tokens`: create access tokens for the HTTP interface."""

from __future__ import annotations

import json
import re

import click

from aggregator.config.setting_checks import ACCESS_SCOPES

TOKEN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@click.group()
def tokens() -> None:
    """Create tokens for the HTTP API.

    A token has scopes: read (estimates, events, metrics), report (definitions, reports), relay
    (crowds) and admin (weights). dither.toml keeps only its hash.
    """


@tokens.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(ACCESS_SCOPES),
    multiple=True,
    required=True,
    help="What the token may do; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def new(name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Create a token, and print it once with the line for dither.toml."""
    from aggregator.web.http.tokens import hash_token, new_token

    if not TOKEN_NAME.fullmatch(name):
        raise click.UsageError(
            f"name {name!r}: expected lower-case letters, digits, - and _, at most 64"
        )
    token = new_token()
    line = " ".join((hash_token(token), *dict.fromkeys(scopes)))
    if as_json:
        click.echo(json.dumps({"name": name, "token": token, "setting": line}))
        return
    click.echo(f"{token}\n")
    click.echo(
        "The token is not shown again. Add this to dither.toml of every server that accepts it:\n"
    )
    click.echo(f'[access.tokens]\n{name} = "{line}"')
