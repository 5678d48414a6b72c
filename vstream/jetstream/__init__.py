"""Everything that speaks to servers: the one package that imports nats."""
