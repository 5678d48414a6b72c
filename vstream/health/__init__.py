"""What all servers said at one moment, and what follows from it. Only `live` halves connect to servers."""
