"""A module per command: `region drain` is in `region_drain`, `plan --drift` in `plan_drift`; results go to `views`."""
