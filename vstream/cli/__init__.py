"""A module per command, such as `region_drain`; `shared_steps` has what several do, and `views` what they print."""
