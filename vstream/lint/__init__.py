"""From files to findings: rules are small generators, `read` and `reading` make what they look at, `engine` runs all."""
