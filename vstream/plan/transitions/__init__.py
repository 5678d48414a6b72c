"""
Changes that take more than one step, one module each.

`vstream.plan.diff` calls their functions at one of two moments. While it compares one stream, some say its steps instead of a plain
creation or update: they read that stream, and what exists. Once all are compared, others go over everything that is planned
(`Transition`): they read what is planned for other streams, and add to it, replace it or block it.
"""
