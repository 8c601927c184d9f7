"""The command ``groupella``: see `groupella.cli.app`."""
