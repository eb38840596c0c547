"""`dither completion`: a shell script that completes commands, options and metrics."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which a shell completes commands, options and metrics.

    \b
    bash:  eval "$(dither completion bash)"    in ~/.bashrc
    zsh:   eval "$(dither completion zsh)"     in ~/.zshrc, after compinit
    fish:  dither completion fish > ~/.config/fish/completions/dither.fish
    """  # noqa: D301  click reads the backspace: these lines stay as they are
    from aggregator.cli.main import COMPLETE_VARIABLE

    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101
    click.echo(kind(root, {}, "dither", COMPLETE_VARIABLE).source(), nl=False)
