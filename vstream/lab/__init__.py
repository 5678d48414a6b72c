"""Real nats-servers on this machine: started from a rendered topology, supervised, and never left behind."""
