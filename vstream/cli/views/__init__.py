"""Reports to text: the one package that imports rich. Data goes to stdout, talk to stderr."""
