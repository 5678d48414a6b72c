"""From files to findings: rules are small generators, `gather` and `reading` make what they look at, `engine` runs all."""
