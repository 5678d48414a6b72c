"""
From files to findings. `pipeline` is a whole run: settings, files, a baseline, corrections.

`engine` checks, and its docstring names the steps. Whoever needs a topology or a scenario asks `check_topology` or
`check_scenario`.
"""
