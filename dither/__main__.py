"""`python -m dither` is `dither`."""

from aggregator.cli.main import main

if __name__ == "__main__":
    main()
