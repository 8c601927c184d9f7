"""Commands of the experiments: light modules, since `groupella --help` imports them all."""
