"""
From files to findings. `pipeline` is a whole run: settings, files, a baseline, corrections.

`engine` checks: `gather` and `reading` make of files what rules look at, and rules are small generators. Whoever needs
a topology or a scenario asks `check_topology` or `check_scenario`.
"""
